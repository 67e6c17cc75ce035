// The text that a job streams: what was written before, and what follows, in order.
import { api, reconnected, throttled, useEffect, useEvents, useRef, useState } from './core.js'

const READ_MOST = 20_000
/** How many characters of it are kept; the first ones are left out. */
export const TEXT_KEPT = 200_000

const NOTHING_WRITTEN = { epoch: -1, text: '', skipped: 0 }

/** Add `job.output.delta` to a text: a higher epoch, or `replaces`, starts it anew. */
function written(was, { epoch = 0, text = '', offset = 0, replaces = false }) {
  if (epoch < was.epoch) return was
  const base = epoch > was.epoch || replaces ? '' : was.text
  const skipped = epoch > was.epoch || replaces ? 0 : was.skipped
  if (offset < base.length + skipped && !replaces) return was
  const whole = base + text
  const cut = Math.max(0, whole.length - TEXT_KEPT)
  return { epoch, text: whole.slice(cut), skipped: skipped + cut }
}

/** Follow the text of a job: `{text, skipped}`. It is read from the start while the job runs. */
export function useWritten(id, state) {
  const [text, setText] = useState(NOTHING_WRITTEN)
  const live = useRef([])
  // What comes meanwhile waits until what was written before is read: it follows it.
  const isRead = useRef(false)
  const add = pieces => setText(was => pieces.reduce(written, was))
  const flush = useRef(null)
  flush.current ??= throttled(() => isRead.current && add(live.current.splice(0)), 100)
  useEvents(event => {
    if (event.job_id !== id || event.type !== 'job.output.delta') return
    live.current.push(event.data)
    flush.current()
  })
  useEffect(() => {
    if (state !== 'running') return
    let isOver = false
    isRead.current = false
    const read = async () => {
      for (let after = 0; !isOver && after <= READ_MOST; ) {
        const page = await api(`/v1/jobs/${encodeURIComponent(id)}/history?after=${after}&limit=500`)
        add(page.items.filter(one => one.type === 'job.output.delta').map(one => one.data))
        if (!page.more) return
        after = page.items.at(-1).n
      }
    }
    const follow = () => {
      if (isOver) return
      isRead.current = true
      flush.current()
    }
    read().then(follow, follow)
    return () => (isOver = true)
  }, [state, reconnected.value])
  useEffect(() => () => flush.current.stop(), [])
  return text
}
