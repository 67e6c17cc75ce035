// The text that a job streams: what was written before, and what follows, in order.
import { api, number, reconnected, throttled, useEffect, useEvents, useRef, useState } from './core.js'

const READ_MOST = 20_000
const PAGE = 500
/** How many characters of it are kept; the first ones are left out. */
export const TEXT_KEPT = 200_000

const NOTHING_WRITTEN = { n: 0, epoch: -1, length: 0, text: '', skipped: 0 }

/** Say whether a delta starts the text anew: a repeated run sends only what is new. */
const isStart = (was, { epoch = 0, offset = 0, replaces = false }) => replaces || (epoch > was.epoch && !offset)

const isMissing = (was, { n, data }) => n > was.n && !isStart(was, data) && (data.offset ?? 0) > was.length

/** Add an event `job.output.delta` to a text. Offsets and lengths count code points. */
function written(was, event) {
  const { epoch = 0, text = '', offset = 0 } = event.data
  if (event.n <= was.n) return was
  const gap = isMissing(was, event) ? `\n[${number(offset - was.length)} characters could not be read]\n` : ''
  const base = isStart(was, event.data) ? NOTHING_WRITTEN : was
  if (offset < base.length) return was
  const whole = base.text + gap + text
  const cut = Math.max(0, whole.length - TEXT_KEPT)
  return { n: event.n, epoch, length: offset + [...text].length, text: whole.slice(cut), skipped: base.skipped + cut }
}

/** Follow the text of a job: `{text, skipped}`. It is read from the start while the job runs. */
export function useWritten(id, state) {
  const [text, setText] = useState(NOTHING_WRITTEN)
  const latest = useRef(text)
  const live = useRef([])
  const read = useRef({ after: 0, isBusy: false, isGone: false })
  const add = events => setText((latest.current = events.reduce(written, latest.current)))
  const catchUp = useRef(null)
  catchUp.current ??= async () => {
    const place = read.current
    // What comes meanwhile waits until what was written before is read: it follows it.
    if (place.isBusy) return
    place.isBusy = true
    try {
      for (let more = true; more && !place.isGone && place.after < READ_MOST; ) {
        const page = await api(`/v1/jobs/${encodeURIComponent(id)}/history?after=${place.after}&limit=${PAGE}`)
        add(page.items.filter(one => one.type === 'job.output.delta'))
        place.after = page.items.at(-1)?.n ?? place.after
        more = page.more
      }
    } catch {
      // The text says what is missing.
    }
    place.isBusy = false
    if (!place.isGone) add(live.current.splice(0))
  }
  const flush = useRef(null)
  flush.current ??= throttled(() => {
    if (read.current.isBusy) return null
    let next = latest.current
    for (const event of live.current) {
      if (isMissing(next, event)) return catchUp.current()
      next = written(next, event)
    }
    return add(live.current.splice(0))
  }, 100)
  useEvents(event => {
    if (event.job_id !== id || event.type !== 'job.output.delta') return
    live.current.push(event)
    flush.current()
  })
  useEffect(() => {
    if (state === 'running') catchUp.current()
  }, [state, reconnected.value])
  useEffect(() => () => {
    read.current.isGone = true
    flush.current.stop()
  }, [])
  return text
}
