import { afterAll, beforeEach, expect, test } from "bun:test";
import {
  API_KEY,
  imageCall,
  imageFailureOf,
  imageProvider,
  imagesOf,
  startImageUpstream,
} from "../support/image-upstream.ts";

/** Stability AI. There is no recording of its answers: they are as its reference documents them. */

const upstream = startImageUpstream();
afterAll(() => upstream.stop());
const stability = imageProvider("stability", `${upstream.origin}/v2beta`);

beforeEach(() => {
  upstream.asked.length = 0;
  upstream.answer = () => Response.json({ image: "aW1n", finish_reason: "SUCCESS", seed: 3 });
});

test("a request is a form at the address of its model, the answer its image", async () => {
  const call = { size: "1536x1024", negativePrompt: "rain", seed: 4, outputFormat: "webp" };
  const answer = await imagesOf(
    stability.image!(
      imageCall("stable-image-core", { ...call, fields: { style_preset: "anime" } }),
    ),
  );
  expect(answer).toEqual({
    kind: "images",
    images: [{ data: { base64: "aW1n" } }],
    usage: undefined,
    outputFormat: "webp",
  });
  await stability.image!(imageCall("sd3.5-large-turbo", { aspectRatio: "1:1" }));
  const [core, sd3] = upstream.asked;
  expect(core!.path).toBe("/v2beta/stable-image/generate/core");
  expect(core!.body).toEqual([
    ["aspect_ratio", "3:2"],
    ["negative_prompt", "rain"],
    ["output_format", "webp"],
    ["prompt", "a boat"],
    ["seed", "4"],
    ["style_preset", "anime"],
  ]);
  expect(core!.headers.get("authorization")).toBe(`Bearer ${API_KEY}`);
  expect(core!.headers.get("accept")).toBe("application/json");
  expect(sd3!.path).toBe("/v2beta/stable-image/generate/sd3");
  expect(sd3!.body).toEqual([
    ["aspect_ratio", "1:1"],
    ["model", "sd3.5-large-turbo"],
    ["prompt", "a boat"],
  ]);
});

test("its account tells whether it takes the key", async () => {
  upstream.answer = () => new Response("", { status: 401 });
  expect((await imageFailureOf(stability.checkKey!())).kind).toBe("misconfigured");
  expect(upstream.asked[0]!.path).toBe("/v1/user/balance");
});

const said = (name: string) => ({ id: "1", name, errors: ["Your request was flagged."] });
test.each([
  ["the prompt's moderation", 403, said("content_moderation"), "content_policy"],
  ["a blurred image", 200, { image: "aW1n", finish_reason: "CONTENT_FILTERED" }, "content_policy"],
  ["a field at fault", 400, said("bad_request"), "rejected"],
  ["a wrong key", 401, said("unauthorized"), "misconfigured"],
  ["no permission", 403, said("forbidden"), "misconfigured"],
  ["too many requests", 429, said("rate_limit_exceeded"), "rate_limited"],
  ["a fault of its own", 500, said("internal_error"), "unavailable"],
  ["no image", 200, { finish_reason: "SUCCESS" }, "unavailable"],
  ["HTML", 200, "<html></html>", "unavailable"],
] as const)("%s", async (_name, status, body, kind) => {
  upstream.answer = () =>
    typeof body === "string" ? new Response(body) : Response.json(body, { status });
  const failure = await imageFailureOf(stability.image!(imageCall("stable-image-ultra")));
  expect(failure.kind).toBe(kind);
  if (status === 403) expect(failure.message).toBe("Your request was flagged.");
});
