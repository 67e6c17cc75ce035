import type {BatchState, FollowOptions} from "./file-processing-events.js"

/** The state of an upload batch, live; the component renders again when it changes. */
export function useFileProcessingEvents(batchId: string, options?: FollowOptions): BatchState
