import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { expectError } from "../support/error-envelope.ts";
import { type FilesGateway, startFilesGateway, uploaded } from "../support/files-gateway.ts";
import { picture } from "../support/images-gateway.ts";
import { lessonsText } from "../support/tuning-gateway.ts";

/*
 * The plan byok at every endpoint that is billed. A route that describes a 402 and is missing here fails the
 * test. The provider counts what arrives: nothing may.
 */

const messages = [{ role: "user", content: "hi" }];
const json = (body: object) => ({ body: JSON.stringify(body), type: "application/json" });
const TALK = Bun.file(join(import.meta.dir, "../fixtures/audio/a.wav"));
const PICTURE = new Blob([picture(64, 64)], { type: "image/png" });

function form(fields: Readonly<Record<string, string | Blob>>) {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === "string") body.set(name, value);
    else body.set(name, value, name === "file" ? "talk.wav" : "picture.png");
  }
  return { body, type: undefined };
}

/** What costs nothing, and what is about money itself. */
const FREE = /count_tokens|input_tokens|\/(admin|billing|credits)\//;

const CALLS: Readonly<Record<string, (file: string) => Promise<Sent> | Sent>> = {
  "/v1/chat/completions": () => json({ model: "test/chat", messages }),
  "/v1/messages": () => json({ model: "test/chat", messages, max_tokens: 10 }),
  "/v1/responses": () => json({ model: "test/chat", input: "hi" }),
  "/v1/responses/compact": () => json({ model: "test/chat", input: messages }),
  "/v1/embeddings": () => json({ model: "test/embed", input: "hi" }),
  "/v1/rerank": () => json({ model: "test/rank", query: "hi", documents: ["hi"] }),
  "/v1/moderations": () => json({ model: "test/moderate", input: "hi" }),
  "/v1/images/generations": () => json({ model: "test/image", prompt: "a cat" }),
  "/v1/images/edits": () => form({ model: "test/image", prompt: "a cat", image: PICTURE }),
  "/v1/images/variations": () => form({ model: "test/image", image: PICTURE }),
  "/v1/audio/speech": () => json({ model: "test/tts", input: "hi", voice: "alloy" }),
  "/v1/audio/transcriptions": () => form({ model: "test/stt", file: TALK }),
  "/v1/audio/translations": () => form({ model: "test/stt", file: TALK }),
  "/v1/fine_tuning/jobs": (file) => json({ model: "test/chat", training_file: file }),
};

interface Sent {
  readonly body: string | FormData;
  readonly type: string | undefined;
}

const arrived: string[] = [];
const provider = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  fetch(request) {
    arrived.push(new URL(request.url).pathname);
    return new Response("{}", { status: 500 });
  },
});

let gateway: FilesGateway;
let secretKey: string;
let trainingFile: string;
beforeAll(async () => {
  const endpoints = [{ provider: "openai", model: "one" }];
  gateway = await startFilesGateway("disk", {
    configuration: {
      providers: [
        { id: "openai", type: "openai", base_url: `${provider.url}v1`, api_key: "sk-test" },
      ],
      models: [
        {
          id: "test/chat",
          category: "chat",
          context_length: 8_000,
          max_output_tokens: 100,
          input_cost_per_token: 1e-6,
          output_cost_per_token: 1e-6,
          training_cost_per_token: 1e-6,
          tuned_input_cost_per_token: 1e-6,
          tuned_output_cost_per_token: 1e-6,
          endpoints,
        },
        {
          id: "test/embed",
          category: "embedding",
          context_length: 8_000,
          input_cost_per_token: 1e-6,
          endpoints,
        },
        { id: "test/rank", context_length: 512, cost_per_search_unit: 0.001, endpoints },
        {
          id: "test/moderate",
          category: "moderation",
          context_length: 512,
          input_cost_per_token: 0,
          endpoints,
        },
        {
          id: "test/image",
          category: "image",
          cost_per_image: 0.01,
          endpoints: [{ provider: "openai", model: "dall-e-2" }],
        },
        { id: "test/tts", category: "audio", cost_per_character: 1e-6, endpoints },
        {
          id: "test/stt",
          category: "audio",
          cost_per_second: 1e-6,
          endpoints: [{ provider: "openai", model: "whisper-1" }],
        },
      ],
    },
  });
  ({ secretKey } = await gateway.addOrganization({ plan: "byok" }));
  const options = { key: secretKey };
  trainingFile = (await uploaded(gateway, "fine-tune", lessonsText(), options)).id;
});
afterAll(async () => {
  await gateway.stop();
  await provider.stop(true);
});

test("every endpoint that is billed stands here", async () => {
  const document = (await (await fetch(`${gateway.baseUrl}/openapi.json`)).json()) as {
    paths: Record<string, { post?: { tags: string[]; responses: Record<string, unknown> } }>;
  };
  const billed = Object.entries(document.paths).flatMap(([path, { post }]) =>
    post !== undefined && "402" in post.responses && !FREE.test(path) ? [path] : [],
  );
  expect(billed.toSorted()).toEqual(Object.keys(CALLS).toSorted());
});

test.each(Object.entries(CALLS))("%s is 402 without a provider key", async (path, call) => {
  const { body, type } = await call(trainingFile);
  const response = await fetch(gateway.baseUrl + path, {
    method: "POST",
    headers: {
      authorization: `Bearer ${secretKey}`,
      ...(type !== undefined && { "content-type": type }),
    },
    body,
  });
  if (path === "/v1/messages") {
    const { error } = (await response.json()) as { error: { type: string; message: string } };
    expect(response.status).toBe(402);
    expect(error.type).toBe("billing_error");
    expect(error.message).toContain("BYOK");
  } else {
    const { error } = await expectError(response, 402, "insufficient_credits");
    expect(error.message).toMatch(/BYOK.*provider key.*openai/);
  }
  expect(arrived).toEqual([]);
});
