import { Type } from "typebox";
import type { OperatedOrganization } from "../../../db/queries/organizations.ts";
import type { OperatorCredit, OrderSource } from "../../billing/ledger/operator-credit.ts";
import { postedEntryShape } from "../../billing/ledger/posted-entry.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { idempotencyKeyOf } from "../../http/idempotency-key.ts";
import {
  type Access,
  nullable,
  optional,
  pageFields,
  type RequestContext,
  type RouteDefinition,
  route,
} from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import { hasAtMostDecimals, type NanoUsd, nanoFromUsd, usdNumber } from "../../lib/money.ts";
import { PLANS } from "../../lib/plans.ts";
import type { ConfigurationServices } from "../configuration/routes.ts";
import type {
  OrganizationAdministration,
  OrganizationChange,
} from "../organizations/organizations.ts";
import { organizationFields, organizationTerms } from "../organizations/routes.ts";

const MAX_NAME_CHARACTERS = 256;
const MAX_DESCRIPTION_CHARACTERS = 500;
const MAX_ID_CHARACTERS = 64;
const MAX_FEE_PERCENT = 100;
const MAX_AMOUNT_USD = 1_000_000_000;
const MAX_COUNT = 2_147_483_647;
const MAX_PAGE = 200;

const name = Type.String({ minLength: 1, maxLength: MAX_NAME_CHARACTERS });
const plan = Type.Enum([...PLANS]);

/**
 * Limits of one organization. Null removes the override, so that the plan or the gateway's default
 * applies. For the credit limit, null means no limit.
 */
const limits = {
  fee_percent: optional(
    Type.Number({
      minimum: 0,
      maximum: MAX_FEE_PERCENT,
      description: "Fee on top of provider cost; at most 2 decimals.",
    }),
  ),
  file_quota_bytes: optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  max_keys: optional(Type.Integer({ minimum: 0, maximum: MAX_COUNT })),
  max_webhooks: optional(Type.Integer({ minimum: 0, maximum: MAX_COUNT })),
  credit_limit_usd: optional(
    Type.Number({
      minimum: 0,
      maximum: MAX_AMOUNT_USD,
      description: "How far the balance can go below zero; null: no limit.",
    }),
  ),
};

const computerUse = Type.Boolean({
  description: "Whether its requests may offer models tools that operate a computer.",
});

const createOrganizationBody = Type.Object(
  {
    name,
    plan: Type.Optional(plan),
    computer_use: Type.Optional(computerUse),
    starting_credit_usd: Type.Optional(Type.Number({ minimum: 0, maximum: MAX_AMOUNT_USD })),
    ...limits,
  },
  { additionalProperties: false },
);

const changeOrganizationBody = Type.Object(
  {
    name: Type.Optional(name),
    plan: Type.Optional(plan),
    suspended: Type.Optional(Type.Boolean()),
    guardrail: optional(
      Type.String({
        maxLength: 128,
        description: "Name or id of the organization's guardrail that applies to all of its calls.",
      }),
    ),
    key_guardrails: Type.Optional(
      Type.Record(
        Type.String({ maxLength: MAX_ID_CHARACTERS }),
        nullable(Type.String({ maxLength: 128 })),
        {
          maxProperties: 100,
          description: "Names or ids of guardrails for single API keys, by key id.",
        },
      ),
    ),
    computer_use: Type.Optional(computerUse),
    ...limits,
  },
  { additionalProperties: false },
);

const pageQuery = Type.Object(pageFields(MAX_PAGE), { additionalProperties: false });

const adjustmentBody = Type.Object(
  {
    amount_usd: Type.Number({
      minimum: -MAX_AMOUNT_USD,
      maximum: MAX_AMOUNT_USD,
      description:
        "A negative amount reduces the part of the balance that is not held. Not 0. At most 9 decimals.",
    }),
    description: Type.String({ minLength: 1, maxLength: MAX_DESCRIPTION_CHARACTERS }),
  },
  { additionalProperties: false },
);

const refundBody = Type.Object(
  {
    transaction_id: Type.String({
      minLength: 1,
      maxLength: MAX_ID_CHARACTERS,
      description: "A usage transaction of the organization, or a top-up by card.",
    }),
    amount_usd: Type.Optional(
      Type.Number({
        exclusiveMinimum: 0,
        maximum: MAX_AMOUNT_USD,
        description: "At most the amount that is not refunded yet, which is also the default.",
      }),
    ),
  },
  { additionalProperties: false },
);

const organization = Type.Object(
  {
    ...organizationFields,
    overrides: Type.Array(Type.String(), {
      description: "Fields that override the plan or the gateway's default.",
    }),
    balance_usd: Type.Number(),
    guardrail: nullable(
      Type.String({ description: "Id of the guardrail that applies to every call." }),
    ),
    key_guardrails: Type.Record(Type.String(), Type.String()),
  },
  { title: "OrganizationDetails" },
);

const organizationList = Type.Object(
  {
    data: Type.Array(organization),
    total: Type.Integer(),
  },
  { title: "OrganizationList" },
);

const createdOrganization = Type.Object(
  {
    organization,
    management_key: Type.String(),
    secret_key: Type.String(),
  },
  { title: "CreatedOrganization" },
);

const postedEntry = Type.Object(
  {
    id: Type.String(),
    type: Type.Enum(["adjustment", "refund"]),
    amount_usd: Type.Number(),
    balance_after_usd: Type.Number(),
    description: Type.String(),
    created_at: Type.String(),
  },
  { title: "Adjustment" },
);

const refundEntry = Type.Object(
  {
    ...postedEntry.properties,
    card_refund_status: Type.Optional(
      Type.Enum(["pending", "succeeded", "failed"], {
        description: "For a top-up: status of the refund at the payment processor.",
      }),
    ),
  },
  { title: "Refund" },
);

export interface AdminServices {
  readonly organizations: OrganizationAdministration;
  readonly credit: OperatorCredit;
  readonly configuration: ConfigurationServices;
}

const access: Access = { kind: "operator" };
const common = { tag: "Operators", access } as const;
const DEFAULT_PAGE = 50;
const NOT_FOUND = { description: "There is no such organization." };

/** Returns the routes for operators, which cover all organizations (contract 5). */
export function adminRoutes({
  organizations,
  credit,
}: Pick<AdminServices, "organizations" | "credit">): RouteDefinition[] {
  return [
    ...organizationRoutes(organizations),
    ...organizationChangeRoutes(organizations),
    ...creditRoutes(credit),
  ];
}

function organizationRoutes(organizations: OrganizationAdministration): RouteDefinition[] {
  return [
    route({
      ...common,
      method: "GET",
      path: "/v1/admin/organizations",
      operationId: "admin.organizations.list",
      summary: "List all organizations",
      query: pageQuery,
      responses: {
        200: { description: "Organizations, newest first.", schema: organizationList },
      },
      async handle(context) {
        const query = context.query;
        const page = { limit: query.limit ?? DEFAULT_PAGE, offset: query.offset ?? 0 };
        const listed = await organizations.list(page);
        return jsonResponse({
          data: listed.organizations.map(organizationShape),
          total: listed.total,
        });
      },
    }),
    route({
      ...common,
      method: "GET",
      path: "/v1/admin/organizations/:id",
      operationId: "admin.organizations.retrieve",
      summary: "Retrieve an organization",
      responses: {
        200: { description: "The organization.", schema: organization },
        404: NOT_FOUND,
      },
      async handle(context) {
        return jsonResponse(organizationShape(await organizations.find(context.params.id)));
      },
    }),
  ];
}

function organizationChangeRoutes(organizations: OrganizationAdministration): RouteDefinition[] {
  return [
    route({
      ...common,
      method: "POST",
      path: "/v1/admin/organizations",
      operationId: "admin.organizations.create",
      summary: "Create an organization",
      description: "The answer contains its management key and its secret key.",
      body: createOrganizationBody,
      responses: {
        201: {
          description: "The organization, with its keys, which are shown only once.",
          schema: createdOrganization,
        },
      },
      async handle(context) {
        const body = context.body;
        const { starting_credit_usd: creditUsd } = body;
        const { organization, prepared } = await organizations.create(
          {
            ...organizationChangeOf(body),
            name: body.name!,
            ...(creditUsd !== undefined && {
              startingCreditNano: amountNano(creditUsd, "starting_credit_usd"),
            }),
          },
          context.author,
        );
        const answer = {
          organization: organizationShape(organization),
          management_key: prepared.managementKey,
          secret_key: prepared.secretKey,
        };
        return jsonResponse(answer, 201);
      },
    }),
    route({
      ...common,
      method: "PATCH",
      path: "/v1/admin/organizations/:id",
      operationId: "admin.organizations.update",
      summary: "Change an organization's plan, fee, quota, limits or suspension",
      body: changeOrganizationBody,
      responses: {
        200: { description: "The changed organization.", schema: organization },
        402: { description: "More than the new credit limit is used or held." },
        404: NOT_FOUND,
        409: { description: "The organization is currently subscribing to a plan." },
      },
      async handle(context) {
        const change = organizationChangeOf(context.body);
        return jsonResponse(
          organizationShape(await organizations.change(context.params.id, change, context.author)),
        );
      },
    }),
  ];
}

function creditRoutes(credit: OperatorCredit): RouteDefinition[] {
  return [
    route({
      ...common,
      method: "POST",
      path: "/v1/admin/organizations/:id/adjustments",
      operationId: "admin.organizations.adjustments.create",
      summary: "Adjust an organization's balance",
      takesIdempotencyKey: true,
      body: adjustmentBody,
      responses: {
        201: { description: "The transaction.", schema: postedEntry },
        402: { description: "The balance that is not held is below the amount." },
        404: NOT_FOUND,
        409: { description: "The idempotency key was used for a different request." },
      },
      async handle(context) {
        const body = context.body;
        const amount = amountNano(body.amount_usd, "amount_usd");
        if (amount === 0n) throw invalid("amount_usd must not be 0.", "amount_usd");
        if (body.description.trim() === "") {
          throw invalid("description must have characters other than spaces.", "description");
        }
        const entry = await credit.adjust(sourceOf(context), {
          organizationId: context.params.id,
          amountNano: amount,
          description: body.description,
        });
        return jsonResponse(postedEntryShape(entry), 201);
      },
    }),
    route({
      ...common,
      method: "POST",
      path: "/v1/admin/organizations/:id/refunds",
      operationId: "admin.organizations.refunds.create",
      summary: "Refund a charge or a top-up",
      description:
        "A charge is refunded to the balance and a top-up to its card, in whole or in part.",
      takesIdempotencyKey: true,
      body: refundBody,
      responses: {
        201: { description: "The transaction.", schema: refundEntry },
        402: { description: "For a top-up: the balance that is not held is below the amount." },
        404: { description: "There is no such organization, or it has no such charge." },
        409: { description: "The idempotency key was used for a different request." },
      },
      async handle(context) {
        const body = context.body;
        const { amount_usd: amountUsd } = body;
        const entry = await credit.refund(sourceOf(context), {
          organizationId: context.params.id,
          chargeId: body.transaction_id,
          amountNano: amountUsd === undefined ? undefined : amountNano(amountUsd, "amount_usd"),
        });
        const { cardStatus } = entry;
        const toCard = cardStatus && { card_refund_status: cardStatus };
        return jsonResponse({ ...postedEntryShape(entry), ...toCard }, 201);
      },
    }),
  ];
}

/** Returns the author and the idempotency key of a request. Throws 400 if the key is invalid. */
function sourceOf({ request, author }: RequestContext): OrderSource {
  const idempotencyKey = idempotencyKeyOf(request.headers.get("idempotency-key"), undefined);
  return { author, idempotencyKey };
}

interface OrganizationBody {
  readonly name?: string;
  readonly plan?: string;
  readonly fee_percent?: number | null;
  readonly file_quota_bytes?: number | null;
  readonly max_keys?: number | null;
  readonly max_webhooks?: number | null;
  readonly credit_limit_usd?: number | null;
  readonly computer_use?: boolean;
  readonly suspended?: boolean;
  readonly guardrail?: string | null;
  readonly key_guardrails?: Readonly<Record<string, string | null>>;
}

const BASIS_POINTS_PER_PERCENT = 100;
const MAX_FEE_DECIMALS = 2;
const MAX_AMOUNT_DECIMALS = 9;

/**
 * Returns the changes that the body states. Fields that are missing in the body stay undefined.
 * Throws 400 if the name is blank, or if the fee or the credit limit has too many decimals.
 */
function organizationChangeOf(body: OrganizationBody): OrganizationChange {
  const change: { -readonly [Field in keyof OrganizationChange]?: OrganizationChange[Field] } = {};
  if (body.name !== undefined) change.name = nameOf(body.name);
  if (body.plan !== undefined) change.plan = body.plan;
  if (body.fee_percent !== undefined) change.feeBasisPoints = basisPoints(body.fee_percent);
  if (body.file_quota_bytes !== undefined) change.fileQuotaBytes = body.file_quota_bytes;
  if (body.max_keys !== undefined) change.maxKeys = body.max_keys;
  if (body.max_webhooks !== undefined) change.maxWebhooks = body.max_webhooks;
  if (body.computer_use !== undefined) change.mayUseComputer = body.computer_use;
  if (body.suspended !== undefined) change.isSuspended = body.suspended;
  if (body.credit_limit_usd !== undefined) {
    change.creditLimitNano =
      body.credit_limit_usd === null ? null : amountNano(body.credit_limit_usd, "credit_limit_usd");
  }
  if (body.guardrail !== undefined || body.key_guardrails !== undefined) {
    const { "": _, ...keyGuardrails } = body.key_guardrails ?? {};
    change.guardrails = {
      ...keyGuardrails,
      ...(body.guardrail !== undefined && { "": body.guardrail }),
    };
  }
  return change;
}

/** Returns the amount in nano-USD. Throws 400 if it has more than 9 decimals. */
function amountNano(usd: number, param: string): NanoUsd {
  if (hasAtMostDecimals(usd, MAX_AMOUNT_DECIMALS)) return nanoFromUsd(usd);
  throw invalid(`${param} may have at most ${MAX_AMOUNT_DECIMALS} decimals.`, param);
}

function invalid(message: string, param: string): GatewayError {
  return new GatewayError("invalid_body", message, { param });
}

function nameOf(name: string): string {
  if (name.trim() !== "") return name;
  throw invalid("name must have characters other than spaces.", "name");
}

function basisPoints(percent: number | null): number | null {
  if (percent === null) return null;
  if (hasAtMostDecimals(percent, MAX_FEE_DECIMALS)) {
    return Math.round(percent * BASIS_POINTS_PER_PERCENT);
  }
  throw invalid(`fee_percent may have at most ${MAX_FEE_DECIMALS} decimals.`, "fee_percent");
}

/**
 * Returns the effective settings of an organization, and the names of the fields that override its
 * plan or the gateway's defaults.
 */
export function organizationShape(organization: OperatedOrganization) {
  const { "": organizationGuardrail, ...keyGuardrails } = organization.guardrails;
  const overrides = {
    fee_percent: organization.feeBasisPoints,
    file_quota_bytes: organization.fileQuotaBytes,
    max_keys: organization.maxKeys,
    max_webhooks: organization.maxWebhooks,
  };
  return {
    ...organizationTerms(organization),
    overrides: Object.entries(overrides).flatMap(([field, value]) => (value === null ? [] : field)),
    balance_usd: usdNumber(organization.balanceNano),
    guardrail: organizationGuardrail ?? null,
    key_guardrails: keyGuardrails,
  };
}
