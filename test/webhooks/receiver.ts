import { createHmac } from "node:crypto";

/** One request as a receiver got it. */
export interface Received {
  readonly id: string;
  readonly type: string;
  readonly headers: Headers;
  readonly body: string;
  readonly event: { id: string; type: string; created_at: string; data: Record<string, unknown> };
  readonly atMs: number;
}

export interface Receiver {
  readonly url: string;
  readonly received: readonly Received[];
  /** What it answers from now on: a status, or whatever it does itself. */
  answer: number | ((received: Received) => Response | Promise<Response>);
  stop(): Promise<void>;
}

/** An HTTP server that notes what it gets. */
export function startReceiver(answer: Receiver["answer"] = 200): Receiver {
  const received: Received[] = [];
  const receiver = {
    url: "",
    received,
    answer,
    stop: () => server.stop(true),
  };
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 60,
    async fetch(request) {
      const body = await request.text();
      const event = JSON.parse(body) as Received["event"];
      const one: Received = {
        id: request.headers.get("gateway-webhook-id")!,
        type: request.headers.get("gateway-webhook-event")!,
        headers: request.headers,
        body,
        event,
        atMs: Date.now(),
      };
      received.push(one);
      return typeof receiver.answer === "number"
        ? new Response("", { status: receiver.answer })
        : receiver.answer(one);
    },
  });
  receiver.url = `http://127.0.0.1:${server.port}/hook`;
  return receiver;
}

/** As spec 6.1 tells receivers to check: one of the signatures is the HMAC of `<timestamp>.<body>`. */
export function isSigned({ headers, body }: Received, secret: string): boolean {
  const parts = headers.get("gateway-webhook-signature")!.split(",");
  const timestamp = parts[0]!.slice(2);
  const wanted = createHmac("sha256", secret).update(`${timestamp}.${body}`).digest("hex");
  const isTimestampTold = headers.get("gateway-webhook-timestamp") === timestamp;
  return isTimestampTold && parts.slice(1).includes(`v1=${wanted}`);
}

/** Settings with which a gateway delivers to receivers on this machine, and does not wait long. */
export const LOCAL_DELIVERY = {
  GATEWAY_WEBHOOK_ALLOW_HTTP: "true",
  GATEWAY_EGRESS_ALLOW: "127.0.0.1/32",
  GATEWAY_WEBHOOK_RETRY_DELAYS: "0.02",
} as const;
