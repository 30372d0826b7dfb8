import type { Database } from "../../../../db/client.ts";
import { listOrganizations } from "../../../../db/queries/organizations.ts";
import { organizationShape } from "../../../accounts/admin/routes.ts";
import type { OrganizationChange } from "../../../accounts/organizations/organizations.ts";
import { usdNumber, usdText } from "../../../lib/money.ts";
import { PLANS } from "../../../lib/plans.ts";
import { isoTime } from "../../../lib/utc-time.ts";
import { addOrganization, organizationIdOf, updateOrganization } from "../actions/organizations.ts";
import { type Command, type CommandInput, UsageError } from "../command.ts";
import { type OperatorSettings, withDatabase } from "../operator-database.ts";
import { moreLine, renderFields, renderTable } from "../print.ts";
import {
  PAGE_OPTIONS,
  readChoice,
  readFeeBasisPoints,
  readLimitNano,
  readName,
  readOverride,
  readPage,
  readWholeNumber,
} from "../read-options.ts";

/** Milliseconds that a running gateway may take to carry out an order on a credit limit. */
const ORDER_TIMEOUT_MS = 10_000;
const MAX_COUNT = 2_147_483_647;

const create: Command = {
  noun: "org",
  verb: "create",
  summary: "Creates an organization with a management key, a secret key and the starting credit.",
  options: {
    name: { value: "NAME", meaning: "name of the organization", isRequired: true },
    plan: { value: "PLAN", meaning: `${PLANS.join(", ")}; default: GATEWAY_PLAN`, choices: PLANS },
  },
  run: ({ options }, context) => {
    const name = readName("name", options.name!);
    const plan = readChoice("plan", options.plan, PLANS);
    const create = async (sql: Database, settings: OperatorSettings) => {
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
        ])}The keys are shown only once.\n`,
      };
    };
    return withDatabase(context, create, { mayCreate: true });
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

const update: Command = {
  noun: "org",
  verb: "update",
  summary: "Changes the plan, fee, quotas and limits of an organization, or suspends it.",
  options: {
    org: { value: "ID", meaning: "id of the organization; not needed if only one exists" },
    name: { value: "NAME", meaning: "name of the organization" },
    plan: {
      value: "PLAN",
      meaning: `${PLANS.join(", ")}; also sets its credit limit`,
      choices: PLANS,
    },
    "fee-percent": {
      value: "X",
      meaning: "fee on top of the provider's cost, or default for the plan's",
    },
    "file-quota-bytes": { value: "N", meaning: "bytes of stored files, or default for the plan's" },
    "credit-limit-usd": { value: "X", meaning: "how far the balance may go below zero, or none" },
    "max-keys": { value: "N", meaning: "most API keys, or default" },
    "max-webhooks": { value: "N", meaning: "most webhooks, or default" },
    "computer-use": {
      value: "BOOL",
      choices: ["true", "false"],
      meaning: "true: requests may offer computer tools to models",
    },
    suspended: {
      value: "BOOL",
      choices: ["true", "false"],
      meaning: "true: reject every call of its keys",
    },
  },
  run: ({ options }, context) => {
    const change = readChange(options);
    if (Object.keys(change).length === 0)
      throw new UsageError("org update needs at least one option to change");
    return withDatabase(context, async (sql) => {
      const id = await organizationIdOf(sql, options.org);
      const updated = await updateOrganization(sql, id, change, {
        timeoutMs: ORDER_TIMEOUT_MS,
        interrupted: context.interrupted,
      });
      const data = organizationShape(updated);
      const creditLimit = data.credit_limit_usd;
      return {
        data,
        text: renderFields([
          ["Organization", data.name],
          ["Id", data.id],
          ["Plan", data.plan],
          ["Fee", `${data.fee_percent} %`],
          ["File quota", `${data.file_quota_bytes} bytes`],
          ["Credit limit", creditLimit === null ? "none" : `${creditLimit} USD`],
          ["Max keys", String(data.max_keys)],
          ["Max webhooks", String(data.max_webhooks)],
          ["Computer tools", data.computer_use ? "yes" : "no"],
          ["Suspended", data.suspended ? "yes" : "no"],
        ]),
      };
    });
  },
};

const NO_LIMIT = "none";

function readChange(options: CommandInput["options"]): OrganizationChange {
  const count = (option: string, maximum = MAX_COUNT) =>
    readOverride(options[option], (text) => readWholeNumber(option, text, 0, maximum));
  const limit = options["credit-limit-usd"];
  const flag = (option: string) => {
    const text = readChoice(option, options[option], ["true", "false"] as const);
    return text === undefined ? undefined : text === "true";
  };
  const change = {
    name: options.name === undefined ? undefined : readName("name", options.name),
    plan: readChoice("plan", options.plan, PLANS),
    feeBasisPoints: readOverride(options["fee-percent"], (text) =>
      readFeeBasisPoints("fee-percent", text),
    ),
    fileQuotaBytes: count("file-quota-bytes", Number.MAX_SAFE_INTEGER),
    maxKeys: count("max-keys"),
    maxWebhooks: count("max-webhooks"),
    creditLimitNano: limit === NO_LIMIT ? null : readLimitNano("credit-limit-usd", limit),
    mayUseComputer: flag("computer-use"),
    isSuspended: flag("suspended"),
  };
  return Object.fromEntries(
    Object.entries(change).filter(([, value]) => value !== undefined),
  ) as OrganizationChange;
}

export const organizationCommands: readonly Command[] = [create, list, update];
