import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import {
  API_KEY,
  type AskedForImages,
  imageCall,
  imageFailureOf,
  imageProvider,
  imagesOf,
  mediaFile,
  startImageUpstream,
} from "../support/image-upstream.ts";

/** Black Forest Labs and fal, whose images are jobs. There is no recording of either: both are as documented. */

const upstream = startImageUpstream();
afterAll(() => upstream.stop());

const PNG = Buffer.from("iVBORw0KGgoAAAANSUhEUgAA", "base64");
const SAMPLE = "https://delivery-us1.bfl.ai/results/ab/sample.jpeg?se=2026";

/** What looks at a job are answered with, in order; the last one stays. */
let looks: (object | Response)[] = [];
let submitted: (asked: AskedForImages) => Response;
const look = (): Response => {
  const next = looks.length > 1 ? looks.shift()! : looks[0]!;
  return next instanceof Response ? next.clone() : Response.json(next);
};

beforeEach(() => {
  upstream.asked.length = 0;
  looks = [];
});

const paths = () => upstream.asked.map(({ method, path }) => `${method} ${path}`);

describe("Black Forest Labs", () => {
  const bfl = imageProvider("bfl", `${upstream.origin}/v1`);
  const ready = { id: "t", status: "Ready", result: { sample: SAMPLE, seed: 1 } };

  beforeEach(() => {
    submitted = () =>
      Response.json({ id: "t", polling_url: `${upstream.origin}/v1/get_result?id=t` });
    upstream.answer = (asked) => (asked.method === "POST" ? submitted(asked) : look());
    looks = [{ id: "t", status: "Pending" }, { id: "t", status: "Pending" }, ready];
  });

  test("a task is looked at until its image is there, whose address is handed on", async () => {
    const call = imageCall("flux-kontext-pro", { size: "1536x1024", seed: 3, outputFormat: "png" });
    const answer = await imagesOf(bfl.image!(call));
    expect(answer).toEqual({
      kind: "images",
      images: [{ data: { url: SAMPLE } }],
      usage: undefined,
    });
    const poll = "GET /v1/get_result?id=t";
    expect(paths()).toEqual(["POST /v1/flux-kontext-pro", poll, poll, poll]);
    expect(upstream.asked[0]!.body).toEqual({
      prompt: "a boat",
      seed: 3,
      output_format: "png",
      aspect_ratio: "3:2",
    });
    for (const { headers } of upstream.asked) expect(headers.get("x-key")).toBe(API_KEY);
  });

  test("each model gets the size in its own way, and images in base64", async () => {
    await bfl.image!(imageCall("flux-pro-1.1", { size: "1024x768" }));
    await bfl.image!(
      imageCall("flux-pro-1.1-ultra", { aspectRatio: "21:9", fields: { raw: true } }),
    );
    const images = [mediaFile(PNG), mediaFile(PNG.subarray(2))];
    await bfl.image!(imageCall("flux-2-pro", { task: "edit", images }));
    const bodies = upstream.asked.filter(({ method }) => method === "POST").map(({ body }) => body);
    expect(bodies).toEqual([
      { prompt: "a boat", width: 1_024, height: 768 },
      { prompt: "a boat", aspect_ratio: "21:9", raw: true },
      {
        prompt: "a boat",
        input_image: PNG.toString("base64"),
        input_image_2: PNG.subarray(2).toString("base64"),
      },
    ]);
  });

  test("the key goes to no other's address", async () => {
    for (const polling_url of [
      "https://evil.example/r?id=t",
      "https://xbfl.ai/r",
      "http://api.us.bfl.ai/",
    ]) {
      submitted = () => Response.json({ id: "t", polling_url });
      const failure = await imageFailureOf(bfl.image!(imageCall("flux-dev")));
      expect(failure.kind).toBe("unavailable");
    }
    expect(upstream.asked.every(({ method }) => method === "POST")).toBe(true);
  });

  test("looks that fail in passing do not lose the task; enough of them do", async () => {
    const busy = new Response("", { status: 503 });
    looks = [
      busy,
      new Response("", { status: 429 }),
      { status: "Pending" },
      busy,
      busy,
      busy,
      ready,
    ];
    expect((await imagesOf(bfl.image!(imageCall("flux-dev")))).images).toHaveLength(1);
    looks = [busy];
    expect((await imageFailureOf(bfl.image!(imageCall("flux-dev")))).kind).toBe("unavailable");
    looks = [new Response("", { status: 401 })];
    upstream.asked.length = 0;
    expect((await imageFailureOf(bfl.image!(imageCall("flux-dev")))).kind).toBe("misconfigured");
    expect(paths()).toHaveLength(2);
  });

  test.each([
    ["Request Moderated", "content_policy"],
    ["Content Moderated", "content_policy"],
    ["Error", "unavailable"],
    ["Task not found", "unavailable"],
  ])("%s ends the task", async (status, kind) => {
    looks = [{ id: "t", status, result: null }];
    expect((await imageFailureOf(bfl.image!(imageCall("flux-dev")))).kind).toBe(kind as never);
  });

  test.each([
    [
      "a field at fault",
      422,
      { detail: [{ loc: ["body", "width"], msg: "too large" }] },
      "rejected",
    ],
    ["no credit", 402, { detail: "Insufficient credits" }, "misconfigured"],
    ["too many tasks", 429, { detail: "slow down" }, "rate_limited"],
    ["no task", 200, {}, "unavailable"],
    ["a task without an image", 200, undefined, "unavailable"],
  ] as const)("%s", async (_name, status, body, kind) => {
    if (body !== undefined) submitted = () => Response.json(body, { status });
    else looks = [{ status: "Ready", result: {} }];
    expect((await imageFailureOf(bfl.image!(imageCall("flux-dev")))).kind).toBe(kind);
  });

  test("a client that leaves ends the looks at once", async () => {
    looks = [{ status: "Pending" }];
    const abort = new AbortController();
    const call = imageCall("flux-dev", { signal: abort.signal });
    const failure = imageFailureOf(bfl.image!(call));
    while (upstream.asked.length < 3) await Bun.sleep(1);
    abort.abort(new Error("gone"));
    expect((await failure).kind).toBe("aborted");
    const seen = upstream.asked.length;
    await Bun.sleep(80);
    expect(upstream.asked.length).toBe(seen);
  });
});

describe("fal", () => {
  const fal = imageProvider("fal", upstream.origin);
  const urls = ["https://v3.fal.media/files/1.png", "https://v3.fal.media/files/2.png"];
  let result: object | Response;
  const base = `${upstream.origin}/fal-ai/flux/requests/r1`;

  beforeEach(() => {
    result = { images: urls.map((url) => ({ url, content_type: "image/png" })), seed: 1 };
    submitted = () =>
      Response.json({
        request_id: "r1",
        response_url: base,
        status_url: `${base}/status`,
        cancel_url: `${base}/cancel`,
      });
    upstream.answer = (asked) => {
      if (asked.method === "POST") return submitted(asked);
      if (asked.path.endsWith("/status")) return look();
      return result instanceof Response ? result.clone() : Response.json(result);
    };
    looks = [
      { status: "IN_QUEUE", queue_position: 2 },
      { status: "IN_PROGRESS" },
      { status: "COMPLETED" },
    ];
  });

  test("a request waits in the queue, runs, and has its result", async () => {
    const call = imageCall("fal-ai/flux/dev", { count: 2, size: "1024x768", seed: 9 });
    const answer = await imagesOf(fal.image!(call));
    expect(answer.images).toEqual(urls.map((url) => ({ data: { url } })));
    const status = "GET /fal-ai/flux/requests/r1/status";
    expect(paths()).toEqual([
      "POST /fal-ai/flux/dev",
      status,
      status,
      status,
      "GET /fal-ai/flux/requests/r1",
    ]);
    expect(upstream.asked[0]!.body).toEqual({
      prompt: "a boat",
      num_images: 2,
      seed: 9,
      image_size: { width: 1_024, height: 768 },
    });
    expect(upstream.asked[0]!.headers.get("authorization")).toBe(`Key ${API_KEY}`);
  });

  test("models get ratios or sizes, one image or several, as each takes them", async () => {
    const url = `data:image/png;base64,${PNG.toString("base64")}`;
    await fal.image!(imageCall("fal-ai/nano-banana", { size: "1024x1024" }));
    const edit = { task: "edit", images: [mediaFile(PNG)] } as const;
    await fal.image!(imageCall("fal-ai/nano-banana/edit", edit));
    await fal.image!(imageCall("fal-ai/flux-pro/kontext", edit));
    const bodies = upstream.asked.filter(({ method }) => method === "POST").map(({ body }) => body);
    expect(bodies).toEqual([
      { prompt: "a boat", num_images: 1, aspect_ratio: "1:1" },
      { prompt: "a boat", num_images: 1, image_urls: [url] },
      { prompt: "a boat", num_images: 1, image_url: url },
    ]);
  });

  test("a client that leaves has the request cancelled", async () => {
    looks = [{ status: "IN_PROGRESS" }];
    const abort = new AbortController();
    const call = imageCall("fal-ai/flux/dev", { signal: abort.signal });
    const failure = imageFailureOf(fal.image!(call));
    while (upstream.asked.length < 3) await Bun.sleep(1);
    abort.abort(new Error("gone"));
    expect((await failure).kind).toBe("aborted");
    while (!paths().includes("PUT /fal-ai/flux/requests/r1/cancel")) await Bun.sleep(1);
  });

  test("the key goes to no other's address", async () => {
    submitted = () => Response.json({ request_id: "r1", status_url: "https://evil.example/s" });
    expect((await imageFailureOf(fal.image!(imageCall("fal-ai/flux/dev")))).kind).toBe(
      "unavailable",
    );
    expect(paths()).toHaveLength(1);
  });

  test("what its filter took is left out; all of it is the content policy", async () => {
    result = { images: urls.map((url) => ({ url })), has_nsfw_concepts: [true, false] };
    const call = imageCall("fal-ai/flux/dev", { count: 2 });
    expect((await imagesOf(fal.image!(call))).images).toEqual([{ data: { url: urls[1]! } }]);
    result = { images: urls.map((url) => ({ url })), has_nsfw_concepts: [true, true] };
    expect((await imageFailureOf(fal.image!(call))).kind).toBe("content_policy");
  });

  const issue = (type: string) => ({ detail: [{ loc: ["body", "prompt"], msg: "No.", type }] });
  test.each([
    ["the content policy", 422, issue("content_policy_violation"), "content_policy"],
    ["a field at fault", 422, issue("value_error"), "rejected"],
    ["no image", 200, { images: [] }, "unavailable"],
    ["HTML", 200, "<html></html>", "unavailable"],
    ["a fault of the model", 500, { detail: "oops" }, "unavailable"],
  ] as const)("%s as the result", async (_name, status, body, kind) => {
    result = typeof body === "string" ? new Response(body) : Response.json(body, { status });
    expect((await imageFailureOf(fal.image!(imageCall("fal-ai/flux/dev")))).kind).toBe(kind);
  });

  test("an error of the status ends the request", async () => {
    looks = [{ status: "COMPLETED", error: "Runner lost", error_type: "runner_disconnected" }];
    const failure = await imageFailureOf(fal.image!(imageCall("fal-ai/flux/dev")));
    expect(failure).toMatchObject({ kind: "unavailable" });
    expect(failure.message).toBe("Runner lost");
  });
});
