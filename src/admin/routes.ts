import { idempotencyKeyOf } from "../calls/idempotency/idempotency.ts";
import type { ProviderHealth } from "../calls/routing/provider-health.ts";
import { jsonResponse } from "../http/json-response.ts";
import type { Access, RequestContext, RouteDefinition } from "../http/route.ts";
import type { OperatorCredit, OrderSource } from "../money/operator-credit.ts";
import type { OrganizationAdministration } from "../organizations/organization-administration.ts";
import * as schema from "./schema.ts";
import { amountNano, invalid, type OrganizationBody, organizationChangeOf } from "./settings.ts";
import { organizationShape, postedEntryShape } from "./shape.ts";

export interface AdminServices {
  readonly organizations: OrganizationAdministration;
  readonly credit: OperatorCredit;
  readonly providers: ProviderHealth;
}

const access: Access = { kind: "operator" };
const common = { tag: "Operators", access } as const;
const DEFAULT_PAGE = 50;
const NOT_FOUND = { description: "There is no such organization" };

/** What operators reach, over all organizations (contract 5). */
export function adminRoutes({
  organizations,
  credit,
  providers,
}: AdminServices): RouteDefinition[] {
  return [
    ...organizationRoutes(organizations),
    ...creditRoutes(credit),
    {
      ...common,
      method: "GET",
      path: "/v1/admin/providers",
      summary: "Show the health of providers as the answering instance sees it",
      responses: { 200: { description: "Providers", schema: schema.providerHealth } },
      handle: () => jsonResponse(providers.report()),
    },
  ];
}

function organizationRoutes(organizations: OrganizationAdministration): RouteDefinition[] {
  return [
    {
      ...common,
      method: "GET",
      path: "/v1/admin/organizations",
      summary: "List all organizations",
      query: schema.pageQuery,
      responses: {
        200: { description: "Organizations, newest first", schema: schema.organizationList },
      },
      async handle(context) {
        const query = context.query as { limit?: number; offset?: number };
        const page = { limit: query.limit ?? DEFAULT_PAGE, offset: query.offset ?? 0 };
        const listed = await organizations.list(page);
        return jsonResponse({
          data: listed.organizations.map(organizationShape),
          total: listed.total,
        });
      },
    },
    {
      ...common,
      method: "POST",
      path: "/v1/admin/organizations",
      summary: "Create an organization with a management key and a secret key",
      body: schema.createOrganizationBody,
      responses: {
        201: {
          description: "The organization, with its keys this once",
          schema: schema.createdOrganization,
        },
      },
      async handle(context) {
        const body = context.body as OrganizationBody & { starting_credit_usd?: number };
        const { starting_credit_usd: creditUsd } = body;
        const { organization, prepared } = await organizations.create({
          ...organizationChangeOf(body),
          name: body.name!,
          ...(creditUsd !== undefined && {
            startingCreditNano: amountNano(creditUsd, "starting_credit_usd"),
          }),
        });
        const answer = {
          organization: organizationShape(organization),
          management_key: prepared.managementKey,
          secret_key: prepared.secretKey,
        };
        return jsonResponse(answer, 201);
      },
    },
    {
      ...common,
      method: "GET",
      path: "/v1/admin/organizations/:id",
      summary: "Retrieve an organization",
      responses: {
        200: { description: "The organization", schema: schema.organization },
        404: NOT_FOUND,
      },
      async handle(context) {
        return jsonResponse(organizationShape(await organizations.find(context.params.id!)));
      },
    },
    {
      ...common,
      method: "PATCH",
      path: "/v1/admin/organizations/:id",
      summary: "Change an organization's plan, fee, quota, limits or suspension",
      body: schema.changeOrganizationBody,
      responses: {
        200: { description: "The organization as it now stands", schema: schema.organization },
        402: { description: "More than the new credit limit is used or held" },
        404: NOT_FOUND,
      },
      async handle(context) {
        const change = organizationChangeOf(context.body as OrganizationBody);
        return jsonResponse(
          organizationShape(await organizations.change(context.params.id!, change)),
        );
      },
    },
  ];
}

function creditRoutes(credit: OperatorCredit): RouteDefinition[] {
  return [
    {
      ...common,
      method: "POST",
      path: "/v1/admin/organizations/:id/adjustments",
      summary: "Add to an organization's balance, or take from what of it is not held",
      takesIdempotencyKey: true,
      body: schema.adjustmentBody,
      responses: {
        201: { description: "The transaction", schema: schema.postedEntry },
        402: { description: "So much is not free to be taken" },
        404: NOT_FOUND,
        409: { description: "The idempotency key was used for another order" },
      },
      async handle(context) {
        const body = context.body as { amount_usd: number; description: string };
        const amount = amountNano(body.amount_usd, "amount_usd");
        if (amount === 0n) throw invalid("amount_usd must not be 0.", "amount_usd");
        if (body.description.trim() === "") {
          throw invalid("description must hold more than spaces.", "description");
        }
        const entry = await credit.adjust(sourceOf(context), {
          organizationId: context.params.id!,
          amountNano: amount,
          description: body.description,
        });
        return jsonResponse(postedEntryShape(entry), 201);
      },
    },
    {
      ...common,
      method: "POST",
      path: "/v1/admin/organizations/:id/refunds",
      summary: "Give a charge, or a part of it, back to the organization",
      takesIdempotencyKey: true,
      body: schema.refundBody,
      responses: {
        201: { description: "The transaction", schema: schema.postedEntry },
        404: { description: "There is no such organization, or no such charge of it" },
        409: { description: "The idempotency key was used for another order" },
      },
      async handle(context) {
        const body = context.body as { transaction_id: string; amount_usd?: number };
        const { amount_usd: amountUsd } = body;
        const entry = await credit.refund(sourceOf(context), {
          organizationId: context.params.id!,
          chargeId: body.transaction_id,
          amountNano: amountUsd === undefined ? undefined : amountNano(amountUsd, "amount_usd"),
        });
        return jsonResponse(postedEntryShape(entry), 201);
      },
    },
  ];
}

/** Throws 400. */
function sourceOf({ request, operatorKeyId }: RequestContext): OrderSource {
  const idempotencyKey = idempotencyKeyOf(request.headers.get("idempotency-key"), undefined);
  return { operatorKeyId, idempotencyKey };
}
