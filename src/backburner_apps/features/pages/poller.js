/**
 * Submits requests to features of Backburner, polls them and fetches their results.
 *
 * Plain `fetch`, no dependencies: the compiled module runs in browsers and in Node.
 */
export const POLL_TIMEOUT = "Job processing timeout - please check status later";
const LONGEST_PAUSE_MS = 60_000;
/** The server refused a request. */
export class FeatureError extends Error {
    status;
    code;
    retryAfterMs;
    constructor(message, status, code, retryAfterMs = 0) {
        super(message);
        this.status = status;
        this.code = code;
        this.retryAfterMs = retryAfterMs;
        this.name = "FeatureError";
    }
    /** Whether the request may succeed later. */
    get isPassing() {
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
    baseUrl;
    apiKey;
    /** `baseUrl` is the server's URL; `apiKey` is sent as a bearer token. */
    constructor(baseUrl, apiKey = "") {
        this.baseUrl = baseUrl;
        this.apiKey = apiKey;
    }
    /** Submits a request. Without `idempotencyKey`, a repeat is another job. */
    submit(feature, request, idempotencyKey) {
        const headers = { "Content-Type": "application/json" };
        if (idempotencyKey !== undefined)
            headers["Idempotency-Key"] = idempotencyKey;
        const body = JSON.stringify(request);
        return this.ask(`${path(feature)}/submit`, { method: "POST", headers, body });
    }
    /** Uploads a CV as a file; returns its `user_cv_key`. */
    async uploadCv(feature, file) {
        const offered = await this.ask(`${path(feature)}/uploads`, {
            method: "POST",
            headers: { "Content-Type": "application/json" },
            body: JSON.stringify({ size: file.size }),
        });
        const { method, headers } = offered;
        const sent = await fetch(offered.upload_url, { method, headers, body: file });
        if (!sent.ok)
            throw await refusal(sent);
        return offered.user_cv_key;
    }
    /** Returns the current state of a job. */
    status(feature, jobId, signal) {
        const options = signal === undefined ? {} : { signal };
        return this.ask(`${path(feature)}/status/${encodeURIComponent(jobId)}`, options);
    }
    /** Ends a job: `FAILED` with the code `CANCELLED`. */
    cancel(feature, jobId) {
        const at = `${path(feature)}/cancel/${encodeURIComponent(jobId)}`;
        return this.ask(at, { method: "POST" });
    }
    /**
     * Polls until the job has ended and returns it, completed or failed.
     *
     * Waits longer only after an error that may pass, twice as long each time.
     */
    async poll(feature, jobId, options = {}) {
        const { onProgress, signal, intervalMs = 5000, attempts = 60 } = options;
        let misses = 0;
        for (let polled = 1; polled <= attempts; polled += 1) {
            let pause = intervalMs;
            let job;
            try {
                job = await this.status(feature, jobId, signal);
                misses = 0;
            }
            catch (error) {
                pause = pauseAfter(error, (misses += 1), intervalMs, signal);
            }
            if (job !== undefined)
                onProgress?.(job);
            if (job?.status === "COMPLETED" || job?.status === "FAILED")
                return job;
            if (polled < attempts)
                await wait(pause, signal);
        }
        throw new PollTimeoutError();
    }
    /** Fetches the result of a completed job. Its URL needs no key. */
    async result(job) {
        if (job.result_url === undefined)
            throw new Error(`job ${job.job_id} has no result`);
        const answer = await fetch(job.result_url);
        if (!answer.ok)
            throw await refusal(answer);
        return (await answer.json());
    }
    async ask(at, options) {
        const headers = new Headers(options.headers);
        if (this.apiKey !== "")
            headers.set("Authorization", `Bearer ${this.apiKey}`);
        const url = this.baseUrl.replace(/\/+$/, "") + at;
        const answer = await fetch(url, { ...options, headers });
        if (!answer.ok)
            throw await refusal(answer);
        return (await answer.json());
    }
}
function path(feature) {
    return `/api/${encodeURIComponent(feature)}`;
}
/** Returns how long to wait after an error; rethrows a permanent one. */
function pauseAfter(error, misses, intervalMs, signal) {
    signal?.throwIfAborted();
    const isRefusal = error instanceof FeatureError;
    // `fetch` throws a TypeError if the network failed.
    if (isRefusal ? !error.isPassing : !(error instanceof TypeError))
        throw error;
    const asked = isRefusal ? error.retryAfterMs : 0;
    const longest = Math.max(LONGEST_PAUSE_MS, intervalMs);
    return Math.min(Math.max(intervalMs * 2 ** misses, asked), longest);
}
function wait(milliseconds, signal) {
    return new Promise((resolve, reject) => {
        if (signal?.aborted) {
            reject(signal.reason);
            return;
        }
        const stop = () => {
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
async function refusal(answer) {
    const body = (await answer.json().catch(() => ({})));
    const message = body.detail ?? `the server answered ${answer.status}`;
    const seconds = Number(answer.headers.get("retry-after") ?? 0);
    const retryAfterMs = Number.isFinite(seconds) ? seconds * 1000 : 0;
    return new FeatureError(message, answer.status, body.code ?? "HTTP_ERROR", retryAfterMs);
}
