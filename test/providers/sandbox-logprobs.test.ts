import { expect, test } from "bun:test";
import { complete, streamed, tool, user } from "./sandbox-calls.ts";

interface Logprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: number[];
  readonly top_logprobs: Omit<Logprob, "top_logprobs">[];
}
interface WithLogprobs {
  readonly logprobs: { readonly content: Logprob[] | null; readonly refusal: null } | null;
}

const messages = [user("Grüße 👋 and more")];

test("a completion tells the log probability of each of its tokens, in OpenAI's shape", async () => {
  const body = { messages, logprobs: true, top_logprobs: 3, n: 2 };
  const { choices, usage } = await complete(body);
  for (const choice of choices) {
    const { logprobs } = choice as unknown as WithLogprobs;
    expect(Object.keys(logprobs!)).toEqual(["content", "refusal"]);
    const content = logprobs!.content!;
    expect(content).toHaveLength(usage.completion_tokens / 2);
    expect(content.map(({ token }) => token).join("")).toBe(choice.message.content!);
    for (const one of content) {
      expect(Object.keys(one)).toEqual(["token", "logprob", "bytes", "top_logprobs"]);
      expect(new TextDecoder().decode(new Uint8Array(one.bytes))).toBe(one.token);
      expect(one.top_logprobs).toHaveLength(3);
      const { top_logprobs: likely, ...chosen } = one;
      expect(likely[0]).toEqual(chosen);
      const probabilities = likely.map(({ logprob }) => Math.exp(logprob));
      expect(probabilities.toSorted((a, b) => b - a)).toEqual(probabilities);
      expect(probabilities.reduce((sum, one) => sum + one)).toBeLessThanOrEqual(1);
    }
  }
  expect((await complete(body)).choices).toEqual(choices);
});

test("a stream brings with each token its own, and the same as a completion", async () => {
  const body = { messages, logprobs: true };
  const chunks = await streamed(body);
  const brought = chunks.flatMap(({ choices }) =>
    choices.flatMap((choice) => (choice as unknown as WithLogprobs).logprobs?.content ?? []),
  );
  const [choice] = (await complete(body)).choices as unknown as WithLogprobs[];
  expect(brought).toEqual(choice!.logprobs!.content!);
  expect(brought.every(({ top_logprobs }) => top_logprobs.length === 0)).toBeTrue();
});

test("calls of tools have none, and without logprobs nothing has any", async () => {
  const tools = [tool("f")];
  const called = await complete({ messages, tools, tool_choice: "required", logprobs: true });
  expect(called.choices[0]).toMatchObject({ logprobs: { content: null, refusal: null } });
  for (const body of [{ messages }, { messages, logprobs: false }]) {
    expect((await complete(body)).choices[0]).toMatchObject({ logprobs: null });
  }
});
