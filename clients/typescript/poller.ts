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

export const POLL_TIMEOUT = "Job processing timeout - please check status later";
const LONGEST_PAUSE_MS = 60_000;

/** The server refused a request. */
export class FeatureError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string,
    readonly retryAfterMs: number = 0,
  ) {
    super(message);
    this.name = "FeatureError";
  }

  /** Whether the request may succeed later. */
  get isPassing(): boolean {
    return this.status === 429 || this.status >= 500;
  }
}

/** The job had not ended at the last poll; it continues. */
export class PollTimeoutError extends Error {
  constructor() {
    super(POLL_TIMEOUT);
    this.name = "PollTimeoutError";
  }
}

export class FeatureClient {
  /** `baseUrl` is the server's URL; `apiKey` is sent as a bearer token. */
  constructor(
    private readonly baseUrl: string,
    private readonly apiKey: string = "",
  ) {}

  /** Submits a request. Without `idempotencyKey`, a repeat is another job. */
  submit(
    feature: string,
    request: FeatureRequest,
    idempotencyKey?: string,
  ): Promise<FeatureJob> {
    const headers: Record<string, string> = { "Content-Type": "application/json" };
    if (idempotencyKey !== undefined) headers["Idempotency-Key"] = idempotencyKey;
    const body = JSON.stringify(request);
    return this.ask(`${path(feature)}/submit`, { method: "POST", headers, body });
  }

  /** Uploads a CV as a file; returns its `user_cv_key`. */
  async uploadCv(feature: string, file: Blob): Promise<string> {
    const offered: Upload = await this.ask(`${path(feature)}/uploads`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ size: file.size }),
    });
    const { method, headers } = offered;
    const sent = await fetch(offered.upload_url, { method, headers, body: file });
    if (!sent.ok) throw await refusal(sent);
    return offered.user_cv_key;
  }

  /** Returns the current state of a job. */
  status(feature: string, jobId: string, signal?: AbortSignal): Promise<FeatureJob> {
    const options: RequestInit = signal === undefined ? {} : { signal };
    return this.ask(`${path(feature)}/status/${encodeURIComponent(jobId)}`, options);
  }

  /** Ends a job: `FAILED` with the code `CANCELLED`. */
  cancel(feature: string, jobId: string): Promise<FeatureJob> {
    const at = `${path(feature)}/cancel/${encodeURIComponent(jobId)}`;
    return this.ask(at, { method: "POST" });
  }

  /**
   * Polls until the job has ended and returns it, completed or failed.
   *
   * Waits longer only after an error that may pass, twice as long each time.
   */
  async poll(
    feature: string,
    jobId: string,
    options: PollOptions = {},
  ): Promise<FeatureJob> {
    const { onProgress, signal, intervalMs = 5000, attempts = 60 } = options;
    let misses = 0;
    for (let polled = 1; polled <= attempts; polled += 1) {
      let pause = intervalMs;
      let job: FeatureJob | undefined;
      try {
        job = await this.status(feature, jobId, signal);
        misses = 0;
      } catch (error) {
        pause = pauseAfter(error, (misses += 1), intervalMs, signal);
      }
      if (job !== undefined) onProgress?.(job);
      if (job?.status === "COMPLETED" || job?.status === "FAILED") return job;
      if (polled < attempts) await wait(pause, signal);
    }
    throw new PollTimeoutError();
  }

  /** Fetches the result of a completed job. Its URL needs no key. */
  async result<T>(job: FeatureJob): Promise<T> {
    if (job.result_url === undefined) throw new Error(`job ${job.job_id} has no result`);
    const answer = await fetch(job.result_url);
    if (!answer.ok) throw await refusal(answer);
    return (await answer.json()) as T;
  }

  private async ask<T>(at: string, options: RequestInit): Promise<T> {
    const headers = new Headers(options.headers);
    if (this.apiKey !== "") headers.set("Authorization", `Bearer ${this.apiKey}`);
    const url = this.baseUrl.replace(/\/+$/, "") + at;
    const answer = await fetch(url, { ...options, headers });
    if (!answer.ok) throw await refusal(answer);
    return (await answer.json()) as T;
  }
}

function path(feature: string): string {
  return `/api/${encodeURIComponent(feature)}`;
}

/** Returns how long to wait after an error; rethrows a permanent one. */
function pauseAfter(
  error: unknown,
  misses: number,
  intervalMs: number,
  signal: AbortSignal | undefined,
): number {
  signal?.throwIfAborted();
  const isRefusal = error instanceof FeatureError;
  // `fetch` throws a TypeError if the network failed.
  if (isRefusal ? !error.isPassing : !(error instanceof TypeError)) throw error;
  const asked = isRefusal ? error.retryAfterMs : 0;
  const longest = Math.max(LONGEST_PAUSE_MS, intervalMs);
  return Math.min(Math.max(intervalMs * 2 ** misses, asked), longest);
}

function wait(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

async function refusal(answer: Response): Promise<FeatureError> {
  const body = (await answer.json().catch(() => ({}))) as {
    detail?: string;
    code?: string;
  };
  const message = body.detail ?? `the server answered ${answer.status}`;
  const seconds = Number(answer.headers.get("retry-after") ?? 0);
  const retryAfterMs = Number.isFinite(seconds) ? seconds * 1000 : 0;
  return new FeatureError(message, answer.status, body.code ?? "HTTP_ERROR", retryAfterMs);
}
