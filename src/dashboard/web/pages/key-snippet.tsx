import { useState } from "preact/hooks";
import { Code, Tabs } from "../components/controls.tsx";
import { useModels, useOf } from "../models/catalogue.ts";
import { gatewayUrl } from "../router.ts";

interface KeySnippetProps {
  /** The secret key. */
  readonly secret: string;
  /** Models that the key may call. Null: all. */
  readonly allowedModels: readonly string[] | null;
}

const FORMS = [
  ["environment", "Environment"],
  ["curl", "curl"],
  ["python", "Python"],
  ["javascript", "JavaScript"],
] as const;

/** Programs that make a first call with a new key, to copy. */
export function KeySnippet({ secret, allowedModels }: KeySnippetProps) {
  const [form, setForm] = useState<string>("environment");
  const { models } = useModels();
  const chat = models?.find(
    (model) => useOf(model) === "chat" && (allowedModels?.includes(model.id) ?? true),
  );
  const model = chat?.id ?? allowedModels?.[0] ?? "sandbox/chat";
  return (
    <>
      <h3>Use it</h3>
      <Tabs label="Program" tabs={FORMS} current={form} onChange={setForm} />
      <Code text={snippet(form, secret, model)} action="Copy" hint={HINTS[form]} />
    </>
  );
}

const HINTS: Readonly<Record<string, string>> = {
  environment: "OpenAI's SDKs read these variables, so programs need no change.",
};

/** Returns a program. Its texts are in JSON, which all of its languages read. */
function snippet(form: string, secret: string, model: string): string {
  const base = new URL("v1", gatewayUrl).href;
  const [key, url, id] = [secret, base, model].map((text) => JSON.stringify(text));
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Hello" }] });
  switch (form) {
    case "curl":
      return [
        `curl ${base}/chat/completions \\`,
        `  -H "Authorization: Bearer ${secret}" \\`,
        `  -H "Content-Type: application/json" \\`,
        `  -d '${body.replaceAll("'", "'\\''")}'`,
      ].join("\n");
    case "python":
      return [
        "from openai import OpenAI",
        "",
        `client = OpenAI(base_url=${url}, api_key=${key})`,
        "answer = client.chat.completions.create(",
        `    model=${id},`,
        '    messages=[{"role": "user", "content": "Hello"}],',
        ")",
        "print(answer.choices[0].message.content)",
      ].join("\n");
    case "javascript":
      return [
        'import OpenAI from "openai";',
        "",
        `const client = new OpenAI({ baseURL: ${url}, apiKey: ${key} });`,
        "const answer = await client.chat.completions.create({",
        `  model: ${id},`,
        '  messages: [{ role: "user", content: "Hello" }],',
        "});",
        "console.log(answer.choices[0].message.content);",
      ].join("\n");
    default:
      return `export OPENAI_BASE_URL=${base}\nexport OPENAI_API_KEY=${secret}`;
  }
}
