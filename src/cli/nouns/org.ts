import { listOrganizations } from "../../../db/queries/organization-list.ts";
import type { PlanName } from "../../config/settings.ts";
import { isoTime } from "../../lib/iso-time.ts";
import { usdNumber, usdText } from "../../lib/money.ts";
import { addOrganization } from "../actions/organizations.ts";
import type { Command } from "../command.ts";
import { withDatabase } from "../operator-database.ts";
import { moreLine, renderFields, renderTable } from "../print/table.ts";
import { PAGE_OPTIONS, readChoice, readName, readPage } from "../read-options.ts";

const PLANS: readonly PlanName[] = ["free", "pro", "byok", "enterprise"];

const create: Command = {
  noun: "org",
  verb: "create",
  summary: "Creates an organization with a management key, a secret key and the starting credit.",
  options: {
    name: { value: "NAME", meaning: "what it is called", isRequired: true },
    plan: { value: "PLAN", meaning: `${PLANS.join(", ")}; GATEWAY_PLAN if not said` },
  },
  run: ({ options }, context) => {
    const name = readName("name", options.name!);
    const plan = readChoice("plan", options.plan, PLANS);
    return withDatabase(context, async (sql, settings) => {
      const request = {
        name,
        plan: plan ?? settings.plan,
        startingCreditNano: settings.startingCreditNanoUsd,
      };
      const { organization, managementKey, secretKey } = await addOrganization(
        sql,
        request,
        context.nowMs(),
      );
      const { id } = organization;
      return {
        data: {
          organization: { id, name, plan: organization.plan },
          management_key: managementKey,
          secret_key: secretKey,
        },
        text: `${renderFields([
          ["Organization", name],
          ["Id", id],
          ["Plan", organization.plan],
          ["Credit", `${usdText(organization.startingCreditNano)} USD`],
          ["Management key", managementKey],
          ["Secret key", secretKey],
        ])}The keys are shown this once.\n`,
      };
    });
  },
};

const list: Command = {
  noun: "org",
  verb: "list",
  summary: "Lists the organizations, newest first.",
  options: PAGE_OPTIONS,
  run: ({ options }, context) => {
    const page = readPage(options);
    return withDatabase(context, async (sql) => {
      const { organizations, total } = await listOrganizations(sql, page);
      const rows = organizations.map(({ id, name, plan, balanceNano, createdAtMs }) => [
        id,
        name,
        plan,
        usdText(balanceNano),
        isoTime(createdAtMs),
      ]);
      return {
        data: {
          data: organizations.map(({ balanceNano, createdAtMs, ...organization }) => ({
            ...organization,
            balance_usd: usdNumber(balanceNano),
            created_at: isoTime(createdAtMs),
          })),
          total,
        },
        text:
          renderTable(["ID", "NAME", "PLAN", "BALANCE USD", "CREATED"], rows, "No organizations.") +
          moreLine(rows.length, page.offset, total),
      };
    });
  },
};

export const organizationCommands: readonly Command[] = [create, list];
