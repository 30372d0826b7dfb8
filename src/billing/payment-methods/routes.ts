import { Type } from "typebox";
import type { PaymentMethod } from "../../../db/queries/payment-methods.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { bodyHash, idempotencyKeyOf } from "../../http/idempotency-key.ts";
import { publicUrl } from "../../http/request-headers.ts";
import {
  type Access,
  organizationOf,
  type RequestContext,
  type RouteDefinition,
  route,
} from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import { hasAtMostDecimals, nanoFromUsd, usdNumber } from "../../lib/money.ts";
import { isoTime } from "../../lib/utc-time.ts";
import { MAX_PAYMENT_DECIMALS, MAX_PAYMENT_USD, MIN_PAYMENT_USD } from "../payments/interface.ts";
import { type PaymentMethods, processorFailed } from "../payments/payment-methods.ts";
import type { PaymentResult, Payments } from "../payments/payments.ts";
import type { StripeEvents } from "../payments/stripe-events.ts";
import { TEST_PAGES } from "../payments/test-processor.ts";
import { stripeRoutes } from "./stripe-route.ts";

const MAX_ID_CHARACTERS = 128;

const topUpBody = Type.Object(
  {
    amount_usd: Type.Number({
      minimum: MIN_PAYMENT_USD,
      maximum: MAX_PAYMENT_USD,
      description: "At most 2 decimals.",
    }),
    payment_method_id: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: MAX_ID_CHARACTERS,
        description:
          "A payment method of the organization or, with the test processor, the name of a test method. Omitted: the default payment method.",
      }),
    ),
  },
  { additionalProperties: false },
);

const topUpResult = Type.Object(
  {
    transaction_id: Type.String(),
    amount_usd: Type.Number(),
    new_balance_usd: Type.Number(),
    created_at: Type.String({ description: "ISO 8601." }),
  },
  { title: "TopUp" },
);

const addMethodBody = Type.Object(
  {
    payment_method: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: MAX_ID_CHARACTERS,
        description:
          "Only with the test processor: the name of a test method, which is added immediately.",
      }),
    ),
  },
  { additionalProperties: false },
);

const changeMethodBody = Type.Object(
  { is_default: Type.Literal(true) },
  { additionalProperties: false },
);

const paymentMethod = Type.Object(
  {
    id: Type.String(),
    type: Type.String(),
    brand: Type.Union([Type.String(), Type.Null()]),
    last4: Type.Union([Type.String(), Type.Null()]),
    is_default: Type.Boolean(),
    created_at: Type.String({ description: "ISO 8601." }),
  },
  { title: "PaymentMethod" },
);
const paymentMethodList = Type.Object(
  { data: Type.Array(paymentMethod) },
  { title: "PaymentMethodList" },
);
const addedMethod = Type.Object(
  {
    id: Type.String(),
    setup_url: Type.Union([Type.String(), Type.Null()], {
      description:
        "The processor's page for entering the card; null if the method has already been added.",
    }),
  },
  { title: "AddedPaymentMethod" },
);
const deletedMethod = Type.Object(
  { id: Type.String(), deleted: Type.Literal(true) },
  { title: "DeletedPaymentMethod" },
);

const tag = "Billing";
const readAccess: Access = { kind: "administration", scope: "billing:read" };
const writeAccess: Access = { kind: "administration", scope: "billing:write" };
const NO_METHOD = { description: "The organization has no such payment method." };

export interface BillingServices {
  readonly payments: Payments;
  readonly methods: PaymentMethods;
  readonly stripeEvents: StripeEvents | undefined;
  readonly publicUrl: string | undefined;
}

/** Returns the routes of top-ups and payment methods (spec 4.9, contract §7). */
export function billingRoutes(services: BillingServices): RouteDefinition[] {
  const { stripeEvents } = services;
  return [
    topUpRoute(services),
    ...methodRoutes(services),
    ...testPaymentRoutes(services),
    ...(stripeEvents === undefined ? [] : stripeRoutes(stripeEvents)),
  ];
}

function topUpRoute({ payments, publicUrl: publicBase }: BillingServices): RouteDefinition {
  const path = "/v1/credits/topup";
  return route({
    method: "POST",
    path,
    tag,
    operationId: "credits.topup",
    summary: "Top up credits with a payment method of the organization",
    access: writeAccess,
    takesIdempotencyKey: true,
    body: topUpBody,
    responses: {
      201: { description: "Paid and credited.", schema: topUpResult },
      402: { description: "The payment method was declined, or its holder must authenticate." },
      404: NO_METHOD,
      408: {
        description: "The outcome of the payment is not known yet; it is credited if it succeeds.",
      },
      409: { description: "The idempotency key was used for another top-up." },
    },
    async handle(context) {
      const body = context.body;
      if (!hasAtMostDecimals(body.amount_usd, MAX_PAYMENT_DECIMALS)) {
        throw new GatewayError("invalid_body", "amount_usd may have at most 2 decimals.", {
          param: "amount_usd",
        });
      }
      const { request, caller } = context;
      const key = idempotencyKeyOf(request.headers.get("idempotency-key"), undefined);
      // The payment processor can take longer than an idle connection stays open.
      const closeWhenIdle = context.keepOpen();
      try {
        const result = await payments.pay({
          organizationId: caller.key.organizationId,
          keyId: caller.key.id,
          author: context.author,
          idempotency: key === undefined ? undefined : { key, bodyHash: hashOf(path, context) },
          purpose: "topup",
          amountNano: nanoFromUsd(body.amount_usd),
          methodId: body.payment_method_id,
          returnUrl: publicUrl("/", request, publicBase),
        });
        return topUpResponse(result);
      } finally {
        closeWhenIdle();
      }
    },
  });
}

function hashOf(path: string, { bodyText }: RequestContext): string {
  return bodyHash(`POST ${path}`, bodyText);
}

/** SDKs retry errors other than rejections. A retry would pay a second time. */
const NOT_AGAIN = { "x-should-retry": "false" };

/** Returns the response for a payment that succeeded. Throws 402, 408 or 502 for any other result. */
function topUpResponse(result: PaymentResult): Response {
  if (result.kind === "paid") {
    const { transactionId, amountNano, balanceAfterNano, createdAtMs } = result.credit;
    const answer = {
      transaction_id: transactionId,
      amount_usd: usdNumber(amountNano),
      new_balance_usd: usdNumber(balanceAfterNano),
      created_at: isoTime(createdAtMs),
    };
    const response = jsonResponse(answer, 201);
    if (result.isReplay) response.headers.set("x-gateway-idempotent-replay", "true");
    return response;
  }
  if (result.kind === "refused") throw processorFailed(result.cause);
  if (result.kind === "unknown") {
    throw new GatewayError(
      "provider_timeout",
      `The payment processor has not reported whether the payment ${result.intentId} succeeded. The gateway checks until the outcome is known, and credits a successful payment exactly once. Repeat the request with the same Idempotency-Key to get the outcome. If you sent no key, check GET /v1/credits/transactions before you pay again.`,
      { headers: NOT_AGAIN, fields: { payment_id: result.intentId } },
    );
  }
  if (result.kind === "declined") {
    throw new GatewayError("payment_declined", `The payment was declined: ${result.message}`, {
      headers: NOT_AGAIN,
      fields: { decline_code: result.reason, payment_id: result.intentId },
    });
  }
  const { url, clientSecret, intentId } = result;
  const way =
    url === undefined
      ? "Confirm it in a browser with the processor's library and client_secret"
      : `Open ${url}`;
  throw new GatewayError(
    "payment_declined",
    `The bank requires the cardholder to authenticate (3-D Secure). ${way}; the payment is credited afterwards.`,
    {
      headers: NOT_AGAIN,
      fields: {
        decline_code: "authentication_required",
        payment_id: intentId,
        ...(url !== undefined && { authentication_url: url }),
        ...(clientSecret !== undefined && { client_secret: clientSecret }),
      },
    },
  );
}

function methodRoutes({ methods, publicUrl: publicBase }: BillingServices): RouteDefinition[] {
  const path = "/v1/billing/payment_methods";
  return [
    {
      method: "GET",
      path,
      tag,
      operationId: "billing.payment_methods.list",
      summary: "List the organization's payment methods",
      access: readAccess,
      responses: {
        200: { description: "Payment methods, oldest first.", schema: paymentMethodList },
      },
      async handle(context) {
        const listed = await methods.list(organizationOf(context));
        return jsonResponse({ data: listed.map(methodShape) });
      },
    },
    route({
      method: "POST",
      path,
      tag,
      operationId: "billing.payment_methods.create",
      summary: "Add a payment method",
      description: "The first payment method becomes the default.",
      access: writeAccess,
      body: addMethodBody,
      responses: {
        201: {
          description: "The method was added, or must be entered at setup_url.",
          schema: addedMethod,
        },
        403: { description: "The organization has the maximum number of payment methods." },
        502: { description: "The payment processor could not be reached." },
      },
      async handle(context) {
        const { payment_method: name } = context.body;
        const returnUrl = publicUrl("/", context.request, publicBase);
        const added = await methods.add(
          organizationOf(context),
          { name, returnUrl },
          context.author,
        );
        return jsonResponse({ id: added.id, setup_url: added.setupUrl }, 201);
      },
    }),
    route({
      method: "PATCH",
      path: `${path}/:id`,
      tag,
      operationId: "billing.payment_methods.update",
      summary: "Make a payment method the default",
      access: writeAccess,
      body: changeMethodBody,
      responses: {
        200: { description: "The changed payment method.", schema: paymentMethod },
        404: NO_METHOD,
      },
      async handle(context) {
        const changed = await methods.makeDefault(
          organizationOf(context),
          context.params.id,
          context.author,
        );
        return jsonResponse(methodShape(changed));
      },
    }),
    route({
      method: "DELETE",
      path: `${path}/:id`,
      tag,
      operationId: "billing.payment_methods.delete",
      summary: "Delete a payment method",
      access: writeAccess,
      responses: {
        200: { description: "The payment method was deleted.", schema: deletedMethod },
        404: NO_METHOD,
      },
      async handle(context) {
        const { id } = context.params;
        await methods.remove(organizationOf(context), id, context.author);
        return jsonResponse({ id, deleted: true });
      },
    }),
  ];
}

const TEST_PAGE_HEAD = {
  "content-type": "text/html; charset=utf-8",
  "content-security-policy":
    "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "cache-control": "no-store",
};

/**
 * Returns the routes of a page that takes the role of the bank's page for test cards. A GET request, such as
 * the preview of a link, credits nothing.
 */
function testPaymentRoutes({ payments }: BillingServices): RouteDefinition[] {
  const description = {
    path: `${TEST_PAGES}/:id/:token`,
    tag,
    access: { kind: "public" },
  } as const;
  const missing = { description: "No test payment with this address is waiting for its payer." };
  const page = (text: string): Response =>
    new Response(
      `<!doctype html><html lang="en"><title>Test payment</title><h1>Test payment</h1>${text}</html>`,
      { headers: TEST_PAGE_HEAD },
    );
  return [
    route({
      ...description,
      method: "GET",
      operationId: "billing.test_payments.retrieve",
      summary: "Show the page on which the holder of a test card authenticates",
      responses: { 200: { description: "The page.", contentType: "text/html" }, 404: missing },
      async handle({ params }) {
        if (!(await payments.awaitsTestPayer(params.id, params.token))) throw notAwaited();
        return page(
          "<p>You are the holder of the test card.</p><form method=post><button>Authenticate</button></form>",
        );
      },
    }),
    route({
      ...description,
      method: "POST",
      operationId: "billing.test_payments.authenticate",
      summary: "Authenticate as the holder of a test card",
      responses: {
        200: { description: "The payment is credited.", contentType: "text/html" },
        404: missing,
      },
      async handle({ params }) {
        if (!(await payments.authenticateTest(params.id, params.token))) throw notAwaited();
        return page("<p>The test payment was authenticated and credited.</p>");
      },
    }),
  ];
}

function notAwaited(): GatewayError {
  return new GatewayError(
    "payment_not_found",
    "No test payment with this address is waiting for its payer.",
  );
}

function methodShape(method: PaymentMethod) {
  return {
    id: method.id,
    type: method.type,
    brand: method.brand,
    last4: method.last4,
    is_default: method.isDefault,
    created_at: isoTime(method.createdAtMs),
  };
}
