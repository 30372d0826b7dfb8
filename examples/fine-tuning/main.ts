/* Uploads examples, trains a model on them, follows the job, and asks the trained model. */
import OpenAI, { toFile } from "openai";

const client = new OpenAI({
  baseURL: `${process.env.GATEWAY_URL ?? "http://127.0.0.1:3000"}/v1`,
  apiKey: process.env.SECRET_KEY,
});
const base = process.env.MODEL ?? "sandbox/chat-2026-01-01";
const POLL_MS = 500;

const lessons = [
  [
    "Where is my parcel?",
    "Open Orders and select Track. The parcel's position is updated every hour.",
  ],
  [
    "How do I return an item?",
    "Open Orders, select Return, and print the label. Returns are free for 30 days.",
  ],
  [
    "Do you ship abroad?",
    "We ship to all countries of the European Union, Norway and Switzerland.",
  ],
  [
    "Can I change my address?",
    "Yes, until the parcel is packed: open Orders and select Change address.",
  ],
  [
    "How do I cancel an order?",
    "Open Orders and select Cancel. The money is back within three days.",
  ],
  ["Which cards do you accept?", "We accept Visa, Mastercard and American Express."],
  ["Is there a warranty?", "All devices have a warranty of two years."],
  ["How do I contact support?", "Write to the chat on this page, from 8 to 20 h on all days."],
  ["Do you have gift cards?", "Yes, from 10 to 200 euros, in the shop under Gifts."],
  ["Where is my invoice?", "Open Orders and select Invoice. You can download it as a PDF."],
] as const;
const content = lessons
  .map(([question, answer]) => ({
    messages: [
      { role: "user", content: question },
      { role: "assistant", content: answer },
    ],
  }))
  .map((example) => JSON.stringify(example))
  .join("\n");

const file = await client.files.create({
  file: await toFile(Buffer.from(content), "lessons.jsonl"),
  purpose: "fine-tune",
});
let job = await client.fineTuning.jobs.create({
  model: base,
  training_file: file.id,
  suffix: "support",
});
console.log(`Training ${base} on ${lessons.length} examples.`);

while (!["succeeded", "failed", "cancelled"].includes(job.status)) {
  await Bun.sleep(POLL_MS);
  job = await client.fineTuning.jobs.retrieve(job.id);
}
const events = await client.fineTuning.jobs.listEvents(job.id);
for (const { message } of events.data.toReversed()) console.log(`Event: ${message}`);
if (job.status !== "succeeded") throw new Error(job.error?.message ?? `The job is ${job.status}.`);

const { data: completion, response } = await client.chat.completions
  .create({
    model: job.fine_tuned_model!,
    messages: [{ role: "user", content: "Where is my parcel?" }],
  })
  .withResponse();
console.log(`Answer: ${completion.choices[0]!.message.content}`);
console.log(`The answer cost ${response.headers.get("x-gateway-cost")} USD.`);
