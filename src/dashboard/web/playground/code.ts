/* Requests as programs. The key comes from the environment. Files are left out, because their base64 would hide the request. */

const DATA = /^(data:[\w/+.-]+;base64,).{80}/s;
/** Longest base64 that is shown. */
const MAX_BASE64 = 200;

/** Returns the body with files replaced by a place for them. */
function withoutFiles(value: unknown, name = ""): unknown {
  if (typeof value === "string") {
    const beginning = DATA.exec(value)?.[1];
    if (beginning !== undefined) return `${beginning}<BASE64>`;
    return name === "data" && value.length > MAX_BASE64 ? "<BASE64>" : value;
  }
  if (Array.isArray(value)) return value.map((item) => withoutFiles(item));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, withoutFiles(item, key)]),
  );
}

/** Returns the request as a curl command. */
export function curlOf(url: string, body: object): string {
  const json = JSON.stringify(withoutFiles(body), null, 2).replaceAll("'", String.raw`'\''`);
  return `curl -N ${url} \\
  -H "Authorization: Bearer $SECRET_KEY" \\
  -H "Content-Type: application/json" \\
  -d '${json}'`;
}

/** Returns the request as a program with OpenAI's SDK for JavaScript. */
export function javaScriptOf(baseUrl: string, body: object): string {
  return `import OpenAI from "openai";

const client = new OpenAI({
  baseURL: ${JSON.stringify(baseUrl)},
  apiKey: process.env.SECRET_KEY,
});

const stream = await client.chat.completions.create(${JSON.stringify(withoutFiles(body), null, 2)});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? "");
}`;
}

/** Fields that OpenAI's SDK for Python takes as parameters. It takes others in extra_body. */
const PARAMETERS = new Set([
  ...["model", "messages", "stream", "stream_options", "temperature", "top_p", "max_tokens", "n"],
  ...["reasoning_effort", "tools", "tool_choice", "response_format", "modalities", "audio", "seed"],
  ...["stop", "user", "logprobs", "top_logprobs", "presence_penalty", "frequency_penalty"],
]);

/** Returns the request as a program with OpenAI's SDK for Python. */
export function pythonOf(baseUrl: string, body: object): string {
  const fields = Object.entries(withoutFiles(body) as object);
  const others = fields.filter(([name]) => !PARAMETERS.has(name));
  const lines = fields
    .filter(([name]) => PARAMETERS.has(name))
    .map(([name, value]) => `    ${name}=${pythonValue(value, "    ")},\n`);
  if (others.length > 0) {
    lines.push(`    extra_body=${pythonValue(Object.fromEntries(others), "    ")},\n`);
  }
  return `import os
from openai import OpenAI

client = OpenAI(
    base_url=${JSON.stringify(baseUrl)},
    api_key=os.environ["SECRET_KEY"],
)

stream = client.chat.completions.create(
${lines.join("")})
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`;
}

function pythonValue(value: unknown, indent: string): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  // A string of JSON is one of Python.
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  const isList = Array.isArray(value);
  const items = isList
    ? value.map((item) => pythonValue(item, inner))
    : Object.entries(value).map(
        ([name, item]) => `${JSON.stringify(name)}: ${pythonValue(item, inner)}`,
      );
  const [open, close] = isList ? "[]" : "{}";
  if (items.length === 0) return `${open}${close}`;
  return `${open}\n${items.map((item) => `${inner}${item},\n`).join("")}${indent}${close}`;
}
