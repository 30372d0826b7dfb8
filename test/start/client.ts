/** An answer of a gateway, read. */
export interface Answer {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
}

/** What the README's first request does. */
export async function chat(baseUrl: string, key: string): Promise<Answer> {
  const response = await fetch(`${baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: "sandbox/chat",
      messages: [{ role: "user", content: "hi" }],
      max_tokens: 10,
    }),
  });
  return { status: response.status, body: (await response.json()) as Answer["body"] };
}

export async function getJson(baseUrl: string, path: string, key: string): Promise<Answer> {
  const response = await fetch(baseUrl + path, { headers: { authorization: `Bearer ${key}` } });
  return { status: response.status, body: (await response.json()) as Answer["body"] };
}
