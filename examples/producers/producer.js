// Asks for a job by a message, with nothing of Backburner installed: `npm install amqplib`.
//
//     node producer.js amqp://guest:guest@localhost/ greetings greet '{"name":"Ada"}'
const { randomUUID } = require("crypto");
const amqp = require("amqplib");

async function main(url, queue, capability, value) {
  const connection = await amqp.connect(url);
  const channel = await connection.createConfirmChannel();
  channel.on("error", () => {}); // the call below is rejected as well, with the reason
  try {
    await channel.checkQueue(queue); // a worker makes it, of the right kind
  } catch (error) {
    await connection.close();
    throw new Error(`queue "${queue}" cannot be used, is a worker of it running? ${error.message}`);
  }

  const requestId = randomUUID(); // keep it: sent again under this, it is the same job
  const message = { capability, input: JSON.parse(value), requestId, userId: "u-7" };
  channel.sendToQueue(queue, Buffer.from(JSON.stringify(message)), {
    contentType: "application/json",
    persistent: true, // on disk before the broker confirms it
    messageId: requestId,
    mandatory: true,
  });
  await channel.waitForConfirms(); // or a message that was lost looks like one that was not
  await connection.close();
  console.log(requestId);
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
