import Stripe from "stripe";

/** A PaymentIntent, as far as the gateway reads it. */
interface StoredIntent {
  readonly id: string;
  readonly amount: number;
  amountReceived: number;
  readonly metadata: Record<string, string>;
  readonly customer: string | undefined;
  status: string;
  method: string;
  lastError: Record<string, string> | null;
  url: string | null;
  readonly created: number;
}

interface StoredRefund {
  readonly id: string;
  readonly amount: number;
  readonly intent: string;
  readonly metadata: Record<string, string>;
  status: string;
}

interface StoredSubscription {
  readonly id: string;
  readonly price: string;
  readonly method: string;
  readonly metadata: Record<string, string>;
  status: string;
  endsAtPeriodEnd: boolean;
  readonly periodStart: number;
  readonly periodEnd: number;
}

interface Kept {
  readonly parameters: string;
  readonly status: number;
  readonly body: string;
}

export interface StripeRequest {
  readonly method: string;
  readonly path: string;
  readonly idempotencyKey: string | null;
  readonly parameters: URLSearchParams;
}

/**
 * Stripe's API as far as the gateway uses it: charges follow from the method's name, results are kept by
 * idempotency key, and another request under a key is refused.
 */
export class StripeServer {
  static readonly SECRET_KEY = "sk_test_0123456789abcdef";
  static readonly WEBHOOK_SECRET = "whsec_0123456789abcdef0123456789abcdef";

  readonly intents = new Map<string, StoredIntent>();
  readonly refunds = new Map<string, StoredRefund>();
  readonly subscriptions = new Map<string, StoredSubscription>();
  readonly requests: StripeRequest[] = [];
  /** Called before an answer is sent, once the work is done: it may delay it, or answer in its place. */
  beforeAnswer: ((request: StripeRequest) => Promise<Response | undefined>) | undefined;
  /** Answers in Stripe's place, before any work. */
  refuse:
    | ((request: StripeRequest) => Response | undefined | Promise<Response | undefined>)
    | undefined;
  /** The state of refunds that are made. */
  refundStatus = "succeeded";
  /** What every price at it says. */
  price: Record<string, unknown> = {
    unit_amount: 2_900,
    currency: "eur",
    recurring: { interval: "month", interval_count: 1 },
  };
  readonly #kept = new Map<string, Kept>();
  readonly #sessions = new Map<string, Record<string, unknown>>();
  readonly #server: ReturnType<typeof Bun.serve>;
  #made = 0;

  constructor(port = 0) {
    this.#server = Bun.serve({
      port,
      hostname: "127.0.0.1",
      reusePort: false,
      idleTimeout: 0,
      fetch: (request) => this.#answer(request),
    });
  }

  get url(): string {
    return `http://127.0.0.1:${this.#server.port}`;
  }

  get environment(): Record<string, string> {
    return {
      STRIPE_SECRET_KEY: StripeServer.SECRET_KEY,
      STRIPE_WEBHOOK_SECRET: StripeServer.WEBHOOK_SECRET,
      STRIPE_API_BASE: this.url,
    };
  }

  async stop(): Promise<void> {
    await this.#server.stop(true);
  }

  /** What was paid. */
  get charges(): StoredIntent[] {
    return [...this.intents.values()].filter(({ status }) => status === "succeeded");
  }

  /** The payer has entered a card on the page of a session. */
  completeSession(id: string, method = "pm_card_visa"): void {
    Object.assign(this.#sessions.get(id)!, { status: "complete", setup_intent: `seti_${method}` });
  }

  /** The holder of the card has authenticated, or failed to. */
  authenticate(id: string, succeeds = true): void {
    const intent = this.intents.get(id)!;
    if (succeeds) succeed(intent);
    else {
      intent.status = "requires_payment_method";
      intent.lastError = {
        code: "payment_intent_authentication_failure",
        message: "The holder of the card did not authenticate.",
      };
    }
  }

  intentJson(intent: StoredIntent): Record<string, unknown> {
    return {
      id: intent.id,
      object: "payment_intent",
      amount: intent.amount,
      amount_received: intent.amountReceived,
      currency: "usd",
      status: intent.status,
      client_secret: `${intent.id}_secret`,
      metadata: intent.metadata,
      customer: intent.customer ?? null,
      payment_method: intent.method,
      last_payment_error: intent.lastError,
      next_action:
        intent.url === null
          ? null
          : { type: "redirect_to_url", redirect_to_url: { url: intent.url, return_url: null } },
      latest_charge:
        intent.status === "succeeded"
          ? {
              id: `ch_${intent.id}`,
              object: "charge",
              receipt_url: `https://pay.stripe.com/${intent.id}`,
            }
          : null,
      created: intent.created,
    };
  }

  /** What Stripe would report of an object, signed with the secret of the endpoint. */
  async event(
    type: string,
    object: Record<string, unknown>,
    options: { readonly secret?: string; readonly timestamp?: number; readonly id?: string } = {},
  ): Promise<{ readonly body: string; readonly headers: Record<string, string> }> {
    const body = JSON.stringify({
      id: options.id ?? `evt_${++this.#made}`,
      object: "event",
      type,
      created: Math.floor(Date.now() / 1_000),
      livemode: false,
      data: { object },
    });
    const signature = await Stripe.webhooks.generateTestHeaderStringAsync({
      payload: body,
      secret: options.secret ?? StripeServer.WEBHOOK_SECRET,
      ...(options.timestamp !== undefined && { timestamp: options.timestamp }),
    } as never);
    return {
      body,
      headers: { "content-type": "application/json; charset=utf-8", "stripe-signature": signature },
    };
  }

  async #answer(request: Request): Promise<Response> {
    const url = new URL(request.url);
    const body = await request.text();
    const asked: StripeRequest = {
      method: request.method,
      path: url.pathname,
      idempotencyKey: request.headers.get("idempotency-key"),
      parameters: new URLSearchParams(request.method === "GET" ? url.search : body),
    };
    this.requests.push(asked);
    const refused = await this.refuse?.(asked);
    if (refused !== undefined) return refused;
    if (request.headers.get("authorization") !== `Bearer ${StripeServer.SECRET_KEY}`) {
      return failure(401, { type: "invalid_request_error", message: "Invalid API Key provided" });
    }
    if (request.headers.get("stripe-version") === null) {
      return failure(400, { type: "invalid_request_error", message: "no version" });
    }
    const response = this.#once(asked, body);
    return (await this.beforeAnswer?.(asked)) ?? response;
  }

  #once(asked: StripeRequest, parameters: string): Response {
    const key = asked.idempotencyKey;
    if (asked.method !== "POST" || key === null) return toResponse(this.#do(asked));
    const kept = this.#kept.get(key);
    if (kept !== undefined) {
      return kept.parameters === `${asked.path} ${parameters}`
        ? toResponse(kept)
        : failure(400, { type: "idempotency_error", message: "Keys for idempotent requests" });
    }
    const answer = this.#do(asked);
    this.#kept.set(key, { ...answer, parameters: `${asked.path} ${parameters}` });
    return toResponse(answer);
  }

  #do({ method, path, parameters }: StripeRequest): { status: number; body: string } {
    const ok = (value: unknown) => ({ status: 200, body: JSON.stringify(value) });
    const missing = {
      status: 404,
      body: errorBody({
        type: "invalid_request_error",
        code: "resource_missing",
        message: `No such object: ${path}`,
      }),
    };
    const id = path.split("/")[3] ?? "";
    if (path === "/v1/balance") return ok({ object: "balance" });
    if (method === "POST" && path === "/v1/customers") {
      return ok({ id: `cus_${++this.#made}`, object: "customer" });
    }
    if (method === "POST" && path === "/v1/payment_intents") return this.#charge(parameters);
    if (path.startsWith("/v1/payment_intents/")) {
      const intent = this.intents.get(id);
      if (intent === undefined) return missing;
      if (path.endsWith("/confirm")) {
        intent.status = "requires_action";
        intent.lastError = null;
        intent.url = `https://hooks.stripe.com/3ds/${intent.id}`;
      }
      if (path.endsWith("/cancel")) {
        if (intent.status === "succeeded") {
          return {
            status: 400,
            body: errorBody({
              type: "invalid_request_error",
              code: "payment_intent_unexpected_state",
              message: "already succeeded",
            }),
          };
        }
        intent.status = "canceled";
      }
      return ok(this.intentJson(intent));
    }
    if (method === "GET" && path === "/v1/payment_intents") {
      const data = [...this.intents.values()].map((intent) => this.intentJson(intent));
      return ok({ object: "list", data, has_more: false, url: path });
    }
    if (method === "POST" && path === "/v1/checkout/sessions") {
      const session = {
        id: `cs_${++this.#made}`,
        object: "checkout.session",
        mode: "setup",
        status: "open",
        setup_intent: null,
        url: `https://checkout.stripe.com/c/${this.#made}`,
        metadata: metadataOf(parameters),
      };
      this.#sessions.set(session.id, session);
      return ok(session);
    }
    if (path.startsWith("/v1/checkout/sessions/")) {
      const session = this.#sessions.get(path.split("/")[4]!);
      return session === undefined ? missing : ok(session);
    }
    if (path.startsWith("/v1/setup_intents/")) {
      return ok({ id, object: "setup_intent", status: "succeeded", payment_method: id.slice(5) });
    }
    if (path.startsWith("/v1/payment_methods/")) {
      return ok({
        id,
        object: "payment_method",
        type: "card",
        card: { brand: "visa", last4: "4242" },
      });
    }
    if (path.startsWith("/v1/prices/")) return ok({ id, object: "price", ...this.price });
    if (method === "POST" && path === "/v1/subscriptions") {
      return ok(subscriptionJson(this.#subscribe(parameters)));
    }
    if (method === "GET" && path === "/v1/subscriptions") {
      const data = [...this.subscriptions.values()].map(subscriptionJson);
      return ok({ object: "list", url: path, has_more: false, data });
    }
    if (path.startsWith("/v1/subscriptions/")) {
      const subscription = this.subscriptions.get(id);
      if (subscription === undefined) return missing;
      if (method === "DELETE") subscription.status = "canceled";
      const ends = parameters.get("cancel_at_period_end");
      if (method === "POST" && ends !== null) subscription.endsAtPeriodEnd = ends === "true";
      return ok(subscriptionJson(subscription));
    }
    if (method === "POST" && path === "/v1/refunds") {
      const refund: StoredRefund = {
        id: `re_${++this.#made}`,
        amount: Number(parameters.get("amount")),
        intent: parameters.get("payment_intent")!,
        metadata: metadataOf(parameters),
        status: this.refundStatus,
      };
      this.refunds.set(refund.id, refund);
      return ok(refundJson(refund));
    }
    if (method === "GET" && path === "/v1/refunds") {
      const all = [...this.refunds.values()];
      const data = all.filter(({ intent }) => intent === parameters.get("payment_intent"));
      return ok({ object: "list", data: data.map(refundJson), has_more: false, url: path });
    }
    if (path.startsWith("/v1/refunds/")) {
      const refund = this.refunds.get(id);
      return refund === undefined ? missing : ok(refundJson(refund));
    }
    return missing;
  }

  #subscribe(parameters: URLSearchParams): StoredSubscription {
    const method = parameters.get("default_payment_method")!;
    const periodStart = Math.floor(Date.now() / 1_000);
    const subscription: StoredSubscription = {
      id: `sub_${++this.#made}`,
      price: parameters.get("items[0][price]")!,
      method,
      metadata: metadataOf(parameters),
      status: DECLINES[method] === undefined ? "active" : "incomplete",
      endsAtPeriodEnd: false,
      periodStart,
      periodEnd: periodStart + 30 * 86_400,
    };
    this.subscriptions.set(subscription.id, subscription);
    return subscription;
  }

  #charge(parameters: URLSearchParams): { status: number; body: string } {
    const method = parameters.get("payment_method")!;
    const intent: StoredIntent = {
      id: `pi_${++this.#made}`,
      amount: Number(parameters.get("amount")),
      amountReceived: 0,
      metadata: metadataOf(parameters),
      customer: parameters.get("customer") ?? undefined,
      status: "requires_payment_method",
      method,
      lastError: null,
      url: null,
      created: Math.floor(Date.now() / 1_000),
    };
    this.intents.set(intent.id, intent);
    const declined = DECLINES[method];
    if (declined === undefined) {
      succeed(intent);
      return { status: 200, body: JSON.stringify(this.intentJson(intent)) };
    }
    intent.lastError = { type: "card_error", ...declined };
    const error = { ...intent.lastError, payment_intent: this.intentJson(intent) };
    return { status: 402, body: errorBody(error) };
  }
}

const DECLINES: Readonly<Record<string, Record<string, string>>> = {
  pm_card_chargeDeclined: {
    code: "card_declined",
    decline_code: "insufficient_funds",
    message: "Your card has insufficient funds.",
  },
  pm_card_authenticationRequired: {
    code: "authentication_required",
    decline_code: "authentication_required",
    message: "Your card was declined. This transaction requires authentication.",
  },
};

function succeed(intent: StoredIntent): void {
  intent.status = "succeeded";
  intent.amountReceived = intent.amount;
  intent.lastError = null;
  intent.url = null;
}

export function refundJson(refund: StoredRefund): Record<string, unknown> {
  return {
    id: refund.id,
    object: "refund",
    amount: refund.amount,
    currency: "usd",
    payment_intent: refund.intent,
    metadata: refund.metadata,
    status: refund.status,
  };
}

function subscriptionJson(subscription: StoredSubscription): Record<string, unknown> {
  const { id, periodStart, periodEnd } = subscription;
  return {
    id,
    object: "subscription",
    status: subscription.status,
    cancel_at_period_end: subscription.endsAtPeriodEnd,
    metadata: subscription.metadata,
    items: {
      object: "list",
      data: [{ id: `si_${id}`, current_period_start: periodStart, current_period_end: periodEnd }],
    },
    latest_invoice: { id: `in_${id}`, hosted_invoice_url: `https://invoice.stripe.com/i/${id}` },
  };
}

function metadataOf(parameters: URLSearchParams): Record<string, string> {
  const entries = [...parameters].flatMap(([name, value]) => {
    const field = /^metadata\[(.+)\]$/.exec(name)?.[1];
    return field === undefined ? [] : [[field, value] as const];
  });
  return Object.fromEntries(entries);
}

function errorBody(error: Record<string, unknown>): string {
  return JSON.stringify({ error });
}

function failure(status: number, error: Record<string, unknown>): Response {
  return toResponse({ status, body: errorBody(error) });
}

function toResponse({ status, body }: { status: number; body: string }): Response {
  return new Response(body, {
    status,
    headers: { "content-type": "application/json", "request-id": "req_stand_in" },
  });
}
