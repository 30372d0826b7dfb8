import type { Database } from "../../../../db/client.ts";
import { deleteKeyEffect, listKeys, lockKey } from "../../../../db/queries/api-keys.ts";
import {
  listOperatorKeys,
  type OperatorKey,
  revokeOperatorKey,
} from "../../../../db/queries/operator-keys.ts";
import { limitForSecretKeys } from "../../../accounts/keys/api-keys.ts";
import { createdKeyShape, keyItemShape } from "../../../accounts/keys/routes.ts";
import { addOperatorKey } from "../../../accounts/organizations/organizations.ts";
import { type ApiKeyKind, generateApiKey } from "../../../lib/api-key-format.ts";
import {
  type ApiKeySettings,
  MAX_RATE_LIMIT,
  SCOPES,
  SETTING_ROWS,
  type SettingKinds,
} from "../../../lib/api-key-record.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { keyDeleted } from "../../../lib/events/key-deleted.ts";
import { newId } from "../../../lib/ids.ts";
import { isoTime, utcDay, utcMonth } from "../../../lib/utc-time.ts";
import { addKeys } from "../actions/keys.ts";
import { organizationIdOf, requireOrganization } from "../actions/organizations.ts";
import { type Command, type CommandInput, UsageError } from "../command.ts";
import { withDatabase } from "../operator-database.ts";
import {
  createdKeyText,
  createdOperatorKeyText,
  keyTable,
  moreLine,
  operatorKeyTable,
} from "../print.ts";
import {
  PAGE_OPTIONS,
  readChoice,
  readFutureTime,
  readLimitNano,
  readModels,
  readName,
  readPage,
  readScopes,
  readWholeNumber,
} from "../read-options.ts";

const KINDS: readonly ApiKeyKind[] = ["secret", "management", "operator"];
const KIND_OPTION = {
  value: "KIND",
  meaning: `${KINDS.join(", ")}; default: secret`,
  choices: KINDS,
};
const ORGANIZATION_OPTION = {
  value: "ID",
  meaning: "id of the organization; not needed if only one exists",
};

interface OptionForm<Value> {
  /** Name of the value in the help. */
  readonly value: string;
  readonly choices?: readonly string[];
  read(option: string, text: string, nowMs: number): Value | undefined;
}

/** How the command line reads each kind of setting. */
const FORMS: { readonly [Kind in keyof SettingKinds]: OptionForm<SettingKinds[Kind]["stored"]> } = {
  text: { value: "TEXT", read: readName },
  scopes: { value: "A,B", choices: SCOPES, read: readScopes },
  rate: { value: "N", read: (name, text) => readWholeNumber(name, text, 1, MAX_RATE_LIMIT) },
  amount: { value: "X", read: readLimitNano },
  flag: { value: "BOOL", choices: ["true", "false"], read: readBoolean },
  id: { value: "ID", read: readName },
  models: { value: "A,B", read: readModels },
  time: { value: "TIME", read: readFutureTime },
};

const SETTINGS = SETTING_ROWS.flatMap(({ name, kind, option }) =>
  option === undefined ? [] : { name, option: option[0], meaning: option[1], ...FORMS[kind] },
);

/** Options of keys of organizations that operator keys do not have. */
const SETTING_OPTIONS: Command["options"] = {
  org: ORGANIZATION_OPTION,
  ...Object.fromEntries(
    SETTINGS.map(({ option, value, choices, meaning }) => [option, { value, choices, meaning }]),
  ),
};

const create: Command = {
  noun: "keys",
  verb: "create",
  summary: "Creates a key and shows it once.",
  options: {
    name: {
      value: "NAME",
      meaning: "name, unique in its organization",
      isRequired: true,
    },
    kind: KIND_OPTION,
    ...SETTING_OPTIONS,
  },
  run: ({ options }, context) => {
    const name = readName("name", options.name!);
    const kind = readChoice("kind", options.kind, KINDS) ?? "secret";
    if (kind === "operator") return createOperatorKey(name, options, context);
    const settings = { ...readSettings(options, context.nowMs()), name };
    const limit = limitForSecretKeys(kind, settings);
    if (limit !== undefined) {
      throw new UsageError(
        `a management key cannot have ${limit}: limits apply to secret keys only`,
      );
    }
    return withDatabase(context, async (sql) => {
      const organizationId = await organizationIdOf(sql, options.org);
      const [created] = await addKeys(sql, [{ organizationId, kind, settings }], context.nowMs());
      const { record, secret } = created!;
      return { data: createdKeyShape(record, secret), text: createdKeyText(record, secret) };
    });
  },
};

/** Returns the settings that the options state. */
function readSettings(options: CommandInput["options"], nowMs: number): Partial<ApiKeySettings> {
  const stated = SETTINGS.flatMap(({ name, option, read }) => {
    const text = options[option];
    return text === undefined ? [] : [[name, read(option, text, nowMs)]];
  });
  return Object.fromEntries(stated);
}

function readBoolean(option: string, text: string): boolean {
  return readChoice(option, text, ["true", "false"]) === "true";
}

function createOperatorKey(
  name: string,
  options: CommandInput["options"],
  context: Parameters<Command["run"]>[1],
) {
  const foreign = Object.keys(SETTING_OPTIONS).find((option) => options[option] !== undefined);
  if (foreign !== undefined) throw new UsageError(`an operator key does not accept --${foreign}`);
  return withDatabase(context, async (sql) => {
    const { key, secret } = await addOperatorKey(sql, { name, nowMs: context.nowMs() });
    const { key_prefix: _, ...shape } = operatorKeyShape(key);
    return { data: { ...shape, key: secret }, text: createdOperatorKeyText(key, secret) };
  });
}

function operatorKeyShape(key: OperatorKey) {
  return {
    id: key.id,
    name: key.name,
    key_prefix: key.keyPrefix,
    kind: "operator",
    created_at: isoTime(key.createdAtMs),
  };
}

const list: Command = {
  noun: "keys",
  verb: "list",
  summary: "Lists keys, newest first, without their secrets.",
  options: {
    org: ORGANIZATION_OPTION,
    kind: {
      value: "KIND",
      meaning: "operator: list operator keys instead of an organization's keys",
    },
    ...PAGE_OPTIONS,
  },
  run: ({ options }, context) => {
    const page = readPage(options);
    if (readChoice("kind", options.kind, ["operator"] as const) === "operator") {
      if (options.org !== undefined)
        throw new UsageError("operator keys belong to no organization: leave out --org");
      return withDatabase(context, async (sql) => {
        const { keys, total } = await listOperatorKeys(sql, page);
        return {
          data: { data: keys.map(operatorKeyShape), total },
          text: operatorKeyTable(keys) + moreLine(keys.length, page.offset, total),
        };
      });
    }
    return withDatabase(context, async (sql) => {
      const id = await organizationIdOf(sql, options.org);
      const { id: organizationId } = await requireOrganization(sql, id);
      const nowMs = context.nowMs();
      const { keys, total } = await listKeys(sql, {
        ...page,
        organizationId,
        isActive: undefined,
        day: utcDay(nowMs).start,
        monthStart: utcMonth(nowMs).start,
      });
      const data = keys.map((key) => ({ ...keyItemShape(key), kind: key.record.kind }));
      return {
        data: { data, total },
        text: keyTable(keys, nowMs) + moreLine(data.length, page.offset, total),
      };
    });
  },
};

const revoke: Command = {
  noun: "keys",
  verb: "revoke",
  summary: "Revokes a key; running gateways reject it within a second.",
  options: { id: { value: "KEY_ID", meaning: "the key's id, such as key_…" } },
  positional: "KEY_ID",
  run: async ({ options, positional }, context) => {
    const id = options.id ?? positional;
    if (id === undefined) throw new UsageError("keys revoke needs --id");
    if (options.id !== undefined && positional !== undefined) {
      throw new UsageError("keys revoke accepts one key at a time");
    }
    await withDatabase(context, (sql) => revokeKey(sql, id));
    return { data: { id, deleted: true }, text: "The key is revoked.\n" };
  },
};

const generate: Command = {
  noun: "keys",
  verb: "generate",
  summary:
    "Prints a well-formed key without storing it, for GATEWAY_SECRET_KEY and similar settings.",
  options: { kind: KIND_OPTION },
  run: async ({ options }) => {
    const kind = readChoice("kind", options.kind, KINDS) ?? "secret";
    const { key } = generateApiKey(kind);
    return { data: { kind, key }, text: `${key}\n` };
  },
};

export const keyCommands: readonly Command[] = [create, list, revoke, generate];

/** Revokes a key. The change feed reports it to running gateways. Throws key_not_found if the key does not exist. */
async function revokeKey(sql: Database, id: string): Promise<void> {
  if (await revokeOperatorKey(sql, id)) return;
  await sql.begin(async (transaction) => {
    const key = await lockKey(transaction, id);
    if (key === undefined) throw new GatewayError("key_not_found", "There is no such API key.");
    const deletion = deleteKeyEffect(
      id,
      keyDeleted.build(newId("evt"), key.organizationId, { key_id: id, key_name: key.name }),
    );
    await deletion.run(transaction);
  });
}
