/**
 * Submits requests to features of Backburner, polls them and fetches their results.
 *
 * Plain `fetch`, no dependencies: the compiled module runs in browsers and in Node.
 */
export type JobStatus = "PENDING" | "PROCESSING" | "COMPLETED" | "FAILED";
export interface FeatureJob {
    job_id: string;
    status: JobStatus;
    created_at: string;
    feature?: string;
    started_at?: string;
    completed_at?: string;
    failed_at?: string;
    error?: string;
    code?: string;
    result_url?: string;
}
export interface FeatureRequest {
    user_cv?: string;
    user_cv_key?: string;
    job_posting: string;
    [field: string]: unknown;
}
export interface Upload {
    user_cv_key: string;
    method: "PUT";
    upload_url: string;
    headers: Record<string, string>;
    expires_at: string;
}
export interface PollOptions {
    /** Called with the job after each poll. */
    onProgress?: (job: FeatureJob) => void;
    /** Stops polling; the job continues. */
    signal?: AbortSignal;
    /** Milliseconds between two polls. Default: 5000. */
    intervalMs?: number;
    /** Maximum number of polls. Default: 60. */
    attempts?: number;
}
export declare const POLL_TIMEOUT = "Job processing timeout - please check status later";
/** The server refused a request. */
export declare class FeatureError extends Error {
    readonly status: number;
    readonly code: string;
    readonly retryAfterMs: number;
    constructor(message: string, status: number, code: string, retryAfterMs?: number);
    /** Whether the request may succeed later. */
    get isPassing(): boolean;
}
/** The job had not ended at the last poll; it continues. */
export declare class PollTimeoutError extends Error {
    constructor();
}
export declare class FeatureClient {
    private readonly baseUrl;
    private readonly apiKey;
    /** `baseUrl` is the server's URL; `apiKey` is sent as a bearer token. */
    constructor(baseUrl: string, apiKey?: string);
    /** Submits a request. Without `idempotencyKey`, a repeat is another job. */
    submit(feature: string, request: FeatureRequest, idempotencyKey?: string): Promise<FeatureJob>;
    /** Uploads a CV as a file; returns its `user_cv_key`. */
    uploadCv(feature: string, file: Blob): Promise<string>;
    /** Returns the current state of a job. */
    status(feature: string, jobId: string, signal?: AbortSignal): Promise<FeatureJob>;
    /** Ends a job: `FAILED` with the code `CANCELLED`. */
    cancel(feature: string, jobId: string): Promise<FeatureJob>;
    /**
     * Polls until the job has ended and returns it, completed or failed.
     *
     * Waits longer only after an error that may pass, twice as long each time.
     */
    poll(feature: string, jobId: string, options?: PollOptions): Promise<FeatureJob>;
    /** Fetches the result of a completed job. Its URL needs no key. */
    result<T>(job: FeatureJob): Promise<T>;
    private ask;
}
