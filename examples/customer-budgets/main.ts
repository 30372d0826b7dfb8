/*
 * Gives a customer a key with a budget, and receives signed webhooks that say how much of it is spent.
 */
import { createHmac, timingSafeEqual } from "node:crypto";
import OpenAI from "openai";

const gatewayUrl = process.env.GATEWAY_URL ?? "http://127.0.0.1:3000";
const model = process.env.MODEL ?? "sandbox/chat";
const MAX_AGE_SECONDS = 300;
const MAX_QUESTIONS = 30;
const EVENT_WAIT_MS = 10_000;

/** Calls the gateway's administration. Throws if it answers with an error. */
async function administer(method: "POST" | "DELETE", path: string, body?: object) {
  const response = await fetch(`${gatewayUrl}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${process.env.MANAGEMENT_KEY}`,
      "content-type": "application/json",
    },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

/** Returns whether a signature is the webhook's and at most five minutes old. There are two while a secret rotates. */
function isSigned(body: string, header: string, secret: string): boolean {
  const fields = header.split(",").map((field) => field.split("="));
  const time = fields.find(([name]) => name === "t")?.[1];
  if (time === undefined || Math.abs(Date.now() / 1_000 - Number(time)) > MAX_AGE_SECONDS) {
    return false;
  }
  const expected = createHmac("sha256", secret).update(`${time}.${body}`).digest();
  return fields.some(([name, value = ""]) => {
    const signature = Buffer.from(value, "hex");
    return (
      name === "v1" && signature.length === expected.length && timingSafeEqual(signature, expected)
    );
  });
}

let secret = "";
const seen = new Set<string>();
const exhausted = Promise.withResolvers<void>();
const receiver = Bun.serve({
  hostname: "127.0.0.1",
  port: Number(process.env.RECEIVER_PORT ?? 0),
  async fetch(request) {
    const body = await request.text();
    const signature = request.headers.get("gateway-webhook-signature") ?? "";
    if (!isSigned(body, signature, secret)) return new Response("bad signature", { status: 400 });
    const { id, type, data } = JSON.parse(body);
    // An event can arrive twice.
    if (!seen.has(id)) {
      seen.add(id);
      console.log(`Event ${type}: ${data.spent_usd} of ${data.budget_usd} USD (${data.period})`);
      if (type === "budget.exhausted") exhausted.resolve();
    }
    return new Response(null, { status: 204 });
  },
});

const webhook = await administer("POST", "/v1/webhooks", {
  url: process.env.RECEIVER_URL ?? receiver.url.href,
  events: ["budget.threshold", "budget.exhausted"],
});
secret = webhook.secret;
const customer = await administer("POST", "/v1/keys", {
  name: `Customer 1, ${new Date().toISOString()}`,
  scopes: ["chat:completions"],
  daily_budget_usd: 0.0002,
});
console.log(`Customer 1 may spend ${customer.daily_budget_usd} USD a day.`);

const client = new OpenAI({ baseURL: `${gatewayUrl}/v1`, apiKey: customer.key, maxRetries: 0 });
for (let question = 1; question <= MAX_QUESTIONS; question++) {
  try {
    await client.chat.completions.create({
      model,
      max_tokens: 50,
      messages: [{ role: "user", content: `Question ${question}` }],
    });
  } catch (error) {
    if (!(error instanceof OpenAI.APIError) || error.status !== 402) throw error;
    console.log(`Question ${question} was rejected: ${error.code}`);
    break;
  }
}
await Promise.race([exhausted.promise, Bun.sleep(EVENT_WAIT_MS)]);
await administer("DELETE", `/v1/webhooks/${webhook.id}`);
await administer("DELETE", `/v1/keys/${customer.id}`);
await receiver.stop(true);
