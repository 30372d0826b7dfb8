import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { expectEnvelope } from "../support/error-envelope.ts";
import {
  type ImagesGateway,
  imageList,
  picture,
  startImagesGateway,
} from "../support/images-gateway.ts";
import { until } from "../support/until.ts";

const DRAFT = picture(256, 256).toString("base64");
const BOAT = picture(1024, 1536).toString("base64");
const USAGE = {
  input_tokens: 20,
  output_tokens: 1_700,
  total_tokens: 1_720,
  input_tokens_details: { text_tokens: 20, image_tokens: 0 },
};

let gateway: ImagesGateway;
let charged = 0;
beforeAll(async () => {
  gateway = await startImagesGateway();
});
afterAll(() => gateway.stop());
beforeEach(async () => {
  gateway.upstream.asked.length = 0;
  gateway.second.answer = () => new Response("down", { status: 500 });
  charged = (await gateway.charges()).length;
});

const newCharges = async () => (await gateway.charges()).slice(charged);
const stream = (body: object = {}) =>
  gateway.generate({ model: "images/tokens", stream: true, partial_images: 2, ...body });

const partial = (index: number, b64_json = DRAFT) => ({
  type: "image_generation.partial_image",
  b64_json,
  partial_image_index: index,
  created_at: 1,
  size: "1024x1536",
  quality: "medium",
  background: "opaque",
  output_format: "png",
});
const completed = (usage: object | null = USAGE) => ({
  type: "image_generation.completed",
  b64_json: BOAT,
  created_at: 1,
  size: "1024x1536",
  quality: "medium",
  background: "opaque",
  output_format: "png",
  usage,
});

const frame = (event: { type: string }) =>
  Buffer.from(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);

/** The provider sends these events, then stays open until `rest` has come, if any. */
function says(events: readonly { type: string }[], rest?: Promise<readonly { type: string }[]>) {
  let isCancelled = false;
  gateway.upstream.answer = () =>
    new Response(
      new ReadableStream({
        async start(controller) {
          for (const event of events) controller.enqueue(frame(event));
          for (const event of (await rest) ?? []) controller.enqueue(frame(event));
          if (!isCancelled) controller.close();
        },
        cancel() {
          isCancelled = true;
        },
      }),
      { headers: { "content-type": "text/event-stream" } },
    );
  return { isCancelled: () => isCancelled };
}

interface Event {
  readonly type?: string;
  readonly b64_json?: string;
  readonly usage?: Record<string, number>;
  readonly error?: { readonly code: string };
  readonly [member: string]: unknown;
}

async function eventsOf(response: Response): Promise<Event[]> {
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toStartWith("text/event-stream");
  const frames = (await response.text()).split("\n\n").filter((text) => text !== "");
  return frames.map((text) => {
    const [, type, data] = /^(?:event: (\S+)\n)?data: (.*)$/.exec(text)!;
    const event = JSON.parse(data!) as Event;
    if (type !== undefined) expect(event.type).toBe(type);
    return event;
  });
}

describe("a stream of images", () => {
  test("brings partial images, then the whole one with what it used and costs", async () => {
    says([partial(0), partial(1), completed()]);
    const events = await eventsOf(await stream());
    expect(events.map(({ type }) => type)).toEqual([
      "image_generation.partial_image",
      "image_generation.partial_image",
      "image_generation.completed",
    ]);
    expect(events[0]).toMatchObject({ partial_image_index: 0, b64_json: DRAFT, quality: "medium" });
    expect(events[2]!.b64_json).toBe(BOAT);
    const providerUsd = 20 * 5e-6 + 1_700 * 4e-5;
    expect(events[2]!.usage).toMatchObject({ ...USAGE, images: 1 });
    expect(events[2]!.usage!.cost).toBeCloseTo(providerUsd * 1.04, 9);
    expect((await newCharges())[0]).toMatchObject({
      usd: Number(providerUsd.toFixed(9)),
      description: "Image generation: images/tokens",
      estimated: false,
    });
  });

  test("ends with the charge: the last image leaves when that is durable", async () => {
    says([completed()]);
    const response = await stream({ partial_images: 0 });
    const reader = response.body!.getReader();
    await reader.read();
    expect(await newCharges()).toHaveLength(1);
    await reader.cancel();
  });

  test("is made of a whole answer where the provider does not stream", async () => {
    gateway.upstream.answer = () => imageList([picture(8, 8), picture(8, 8)]);
    const events = await eventsOf(
      await gateway.generate({ model: "images/one", n: 2, stream: true }),
    );
    expect(events.map(({ type, size }) => [type, size])).toEqual([
      ["image_generation.completed", "8x8"],
      ["image_generation.completed", "8x8"],
    ]);
    expect(events[1]!.usage).toMatchObject({ images: 2, cost: 0.0832 });
    expect((await newCharges()).map(({ usd }) => usd)).toEqual([0.08]);
  });

  test("is paid for by a client that leaves, with the image that was under way", async () => {
    const { promise: never } = Promise.withResolvers<[]>();
    const provider = says([partial(0)], never);
    const controller = new AbortController();
    const response = await gateway.request(
      "POST",
      "/v1/images/generations",
      { model: "images/one", prompt: "x", stream: true, partial_images: 2 },
      { signal: controller.signal },
    );
    const reader = response.body!.getReader();
    expect((await reader.read()).value!.length).toBeGreaterThan(10);
    controller.abort();
    const charges = await until("it is charged", async () => {
      const found = await newCharges();
      return found.length > 0 && found;
    });
    expect(charges).toMatchObject([{ usd: 0.04, quantities: { images: 1 } }]);
    await until("the provider is stopped", provider.isCancelled);
  });

  test("costs no image where the provider fails before it is whole", async () => {
    const error = { type: "error", error: { code: "server_error", message: "broken" } };
    says([partial(0), error]);
    const events = await eventsOf(
      await gateway.generate({ model: "images/one", stream: true, partial_images: 1 }),
    );
    expect(events[0]!.type).toBe("image_generation.partial_image");
    expectEnvelope(events[1]);
    const [charge] = await newCharges();
    expect(charge).toMatchObject({ usd: 0 });
  });

  test("fails over, and with its own status, while nothing has left", async () => {
    says([partial(0, "no base64!")]);
    gateway.second.answer = () => imageList([picture(8, 8)]);
    const saved = await gateway.generate({ model: "images/one", stream: true, partial_images: 1 });
    expect(saved.headers.get("x-gateway-provider")).toBe("second");
    expect((await eventsOf(saved)).map(({ type }) => type)).toEqual(["image_generation.completed"]);
    gateway.second.answer = () => new Response("down", { status: 500 });
    const failed = await gateway.generate({ model: "images/one", stream: true, partial_images: 1 });
    expect(failed.status).toBe(502);
  });

  test("brings no more images, nor parts of them, than were asked for", async () => {
    says([partial(0), partial(1), partial(2), partial(3), completed(), completed(), completed()]);
    const events = await eventsOf(await stream({ partial_images: 1 }));
    expect(events).toHaveLength(2);
    expect((await newCharges())[0]!.quantities).toMatchObject({ images: 1 });
  });

  test("that ends with a partial image fails, and costs no image", async () => {
    says([partial(0)]);
    const events = await eventsOf(
      await gateway.generate({ model: "images/one", stream: true, partial_images: 1 }),
    );
    expect(events[1]!.error?.code).toBe("provider_error");
    expect((await newCharges()).map(({ usd }) => usd)).toEqual([0]);
  });

  test("whose connection breaks is paid for, with the image that was under way", async () => {
    let pieces = 0;
    gateway.upstream.answer = () =>
      new Response(
        new ReadableStream({
          async pull(controller) {
            if (pieces++ === 0) return controller.enqueue(frame(partial(0)));
            await Bun.sleep(50);
            controller.error();
          },
        }),
        { headers: { "content-type": "text/event-stream" } },
      );
    const events = await eventsOf(
      await gateway.generate({ model: "images/one", stream: true, partial_images: 1 }),
    );
    expect(events).toHaveLength(2);
    expect(events[0]!.type).toBe("image_generation.partial_image");
    expectEnvelope(events[1]);
    expect(await newCharges()).toMatchObject([{ usd: 0.04, quantities: { images: 1 } }]);
  });

  test("without reported tokens is charged as many as such images have at most", async () => {
    says([partial(0), completed(null)]);
    const events = await eventsOf(await stream({ partial_images: 1 }));
    expect(events[1]!.usage).toMatchObject({ output_tokens: 8_100 });
    expect((await newCharges())[0]).toMatchObject({ estimated: true });
  });
});
