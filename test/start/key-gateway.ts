import { expect } from "bun:test";
import { exitOf, type GatewayProcess } from "../crash/gateway-process.ts";

export async function stop(gateway: GatewayProcess): Promise<void> {
  gateway.signal("SIGTERM");
  expect(await exitOf(gateway)).toBe(0);
}

/** A start that fails: exit code 1, and one line that says why, without a key. */
export async function refusal(
  gateway: GatewayProcess,
  ...secrets: readonly string[]
): Promise<string> {
  expect(await exitOf(gateway)).toBe(1);
  const said = gateway.stderr();
  expect(said.trimEnd().split("\n")).toHaveLength(1);
  expect(gateway.stdout()).not.toContain("listening on");
  for (const secret of secrets) expect(said + gateway.stdout()).not.toContain(secret);
  return said.trimEnd();
}

/** A call under an idempotency key; whether it was answered with what is stored. */
export async function call(baseUrl: string, key: string, name: string): Promise<boolean> {
  const response = await fetch(`${baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${key}`,
      "content-type": "application/json",
      "idempotency-key": name,
    },
    body: JSON.stringify({
      model: "sandbox/chat",
      messages: [{ role: "user", content: name }],
      max_tokens: 16,
    }),
  });
  expect(response.status).toBe(200);
  expect(await response.text()).toContain("choices");
  return response.headers.get("x-gateway-idempotent-replay") === "true";
}
