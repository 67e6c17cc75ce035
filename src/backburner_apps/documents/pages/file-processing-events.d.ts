/** Types of file-processing-events.js: the events of a batch, and its state. */

export type FileStatus =
  | "pending_upload"
  | "uploaded"
  | "queued"
  | "extracting"
  | "chunking"
  | "embedding"
  | "ready"
  | "failed"

export type Stage = "extracting" | "chunking" | "embedding"

export interface BatchSummary {
  total: number
  ready: number
  failed: number
}

export interface FileStatusChanged {
  fileId: string
  batchId: string
  from: FileStatus
  to: FileStatus
  error?: string | null
  chunkCount?: number | null
}

export interface BatchProgress extends BatchSummary {
  batchId: string
  queued: number
  extracting: number
  chunking: number
  embedding: number
}

export interface BatchCompleted {
  batchId: string
  summary: BatchSummary
}

export interface FileProcessingStalled {
  fileId: string
  stage: Stage
  retryCount: number
}

interface Published<Type extends string, Data> {
  type: Type
  /** The number of the event among all events: the cursor to resume after. */
  seq: number
  at: string
  data: Data
}

export type FileProcessingEvent =
  | Published<"file:status-changed", FileStatusChanged>
  | Published<"file:processing-stalled", FileProcessingStalled>
  | Published<"batch:progress", BatchProgress>
  | Published<"batch:completed", BatchCompleted>
  /** Events may have been missed: read the batch again over HTTP. */
  | Published<"reset", {after: number}>

export type Connection = "connecting" | "open" | "waiting" | "closed"

export interface FollowOptions {
  /** The server, for example `https://api.example`; by default the page's own origin. */
  url?: string
  /** A stream token for the topic `batch:{batchId}`, or a function that gets one. */
  token?: string | (() => string | Promise<string>)
  /** The `seq` of the last event that was seen; 0 begins with the batch's first event. */
  after?: number
  onEvent?: (event: FileProcessingEvent) => void
  onConnection?: (connection: Connection, error?: unknown) => void
  WebSocket?: typeof WebSocket
}

export interface FileState {
  fileId: string
  status?: FileStatus
  /** How often its processing has stalled. */
  stalls: number
  error?: string
  chunkCount?: number
}

export interface Notice {
  seq: number
  at: string
  type: FileProcessingEvent["type"]
  text: string
}

export interface BatchState {
  files: Readonly<Record<string, FileState>>
  progress: BatchProgress | null
  /** Set while the batch is completed. */
  summary: BatchSummary | null
  notices: readonly Notice[]
  connection: Connection
  cursor: number
}

export interface FileProcessingEvents {
  /** Calls the listener after each change; connects while there are listeners. */
  subscribe(listener: () => void): () => void
  getSnapshot(): BatchState
  close(): void
}

export const NOTHING_YET: BatchState
export function completedNotice(summary: Pick<BatchSummary, "ready" | "total">): string
export function stalledNotice(retryCount: number): string
export function applied(state: BatchState, event: FileProcessingEvent): BatchState
export function followBatch(
  batchId: string,
  options?: FollowOptions,
): {close(): void; readonly cursor: number}
export function useFileProcessingEvents(
  batchId: string,
  options?: FollowOptions,
): FileProcessingEvents
