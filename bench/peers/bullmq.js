// BullMQ on Redis, in Node: the fastest of the peers.
//
//     node bench/peers/bullmq.js submit 5000|worker|stored|forget
const fs = require("fs");
const { Queue, Worker } = require("bullmq");

const { BENCH_NAME: name, BENCH_URL: url, BENCH_MARKS: marks } = process.env;
const { hostname: host, port } = new URL(url);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const version = require("bullmq/package.json").version;
const CHUNK = 500;

const payload = (i) => ({ i, user: "u-000042", kind: "noop", pad: "x".repeat(150) });

async function submit(queue, count) {
  const begun = process.hrtime.bigint();
  for (let first = 0; first < count; first += CHUNK) {
    const size = Math.min(CHUNK, count - first);
    const jobs = Array.from({ length: size }, (_, k) => ({ name: "noop", data: payload(first + k) }));
    await queue.addBulk(jobs);
  }
  const spent = Number(process.hrtime.bigint() - begun) / 1e9;
  console.log(JSON.stringify({ submit_per_second: Math.round(count / spent), version }));
}

function work() {
  const file = fs.openSync(marks, "a");
  const run = async (job) => {
    fs.writeSync(file, ".");
    return job.data.i;
  };
  new Worker(name, run, { connection, concurrency: 100 });
}

async function main() {
  const [verb, count] = process.argv.slice(2);
  if (verb === "worker") return work();
  const queue = new Queue(name, { connection });
  await queue.waitUntilReady();
  if (verb === "submit") await submit(queue, Number(count));
  if (verb === "stored") console.log(await queue.getCompletedCount());
  if (verb === "forget") await queue.obliterate({ force: true });
  await queue.close();
}

main();
