// A React hook: the state of an upload batch, live. It uses the React of the page.
import {useEffect, useMemo, useRef, useSyncExternalStore} from "react"
import {useFileProcessingEvents as stateOf} from "./file-processing-events.js"

// Returns the state of a batch and renders again whenever it changes. The options are
// those of the plain function; after a change of `url`, it reconnects.
export function useFileProcessingEvents(batchId, options = {}) {
  const latest = useRef(options)
  useEffect(() => {
    latest.current = options
  })
  const events = useMemo(() => stateOf(batchId, {
    ...latest.current,
    url: options.url,
    token: () => {
      const {token} = latest.current
      return typeof token === "function" ? token() : token
    },
    onEvent: event => latest.current.onEvent?.(event),
    onConnection: (...values) => latest.current.onConnection?.(...values),
  }), [batchId, options.url])
  return useSyncExternalStore(events.subscribe, events.getSnapshot, events.getSnapshot)
}
