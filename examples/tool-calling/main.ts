/* A model that calls two tools until it has what it needs for its answer. */
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: `${process.env.GATEWAY_URL ?? "http://127.0.0.1:3000"}/v1`,
  apiKey: process.env.SECRET_KEY,
});
const model = process.env.MODEL ?? "sandbox/chat";
const MAX_ROUNDS = 5;

const functions: Record<string, (input: { city: string }) => object> = {
  get_weather: ({ city }) => ({ city, celsius: 18, sky: "clear" }),
  get_local_time: ({ city }) => ({ city, time: "14:30" }),
};

const tools: OpenAI.ChatCompletionTool[] = [
  { name: "get_weather", description: "Returns the current weather of a city." },
  { name: "get_local_time", description: "Returns the local time of a city." },
].map((tool) => ({
  type: "function",
  function: {
    ...tool,
    parameters: {
      type: "object",
      properties: { city: { type: "string", enum: ["Lisbon", "Oslo"] } },
      required: ["city"],
    },
  },
}));

const messages: OpenAI.ChatCompletionMessageParam[] = [
  { role: "user", content: "What is the weather in Lisbon, and what time is it there?" },
];

for (let round = 1; round <= MAX_ROUNDS; round++) {
  const { data: completion, response } = await client.chat.completions
    .create({ model, messages, tools })
    .withResponse();
  const message = completion.choices[0]!.message;
  messages.push(message);
  console.log(`Call ${round} of ${model} cost ${response.headers.get("x-gateway-cost")} USD.`);
  if (!message.tool_calls?.length) {
    console.log(`Answer: ${message.content}`);
    break;
  }
  for (const call of message.tool_calls) {
    if (call.type !== "function") continue;
    const result = JSON.stringify(
      functions[call.function.name]!(JSON.parse(call.function.arguments)),
    );
    console.log(`${call.function.name}(${call.function.arguments}) returned ${result}`);
    messages.push({ role: "tool", tool_call_id: call.id, content: result });
  }
}
