import { listKeys } from "../../../db/queries/key-list.ts";
import { generateApiKey } from "../../lib/api-key-format.ts";
import type { KeyKind } from "../../lib/api-key-record.ts";
import { utcDay, utcMonth } from "../../lib/periods.ts";
import { createdKeyShape, keyItemShape } from "../../routes/keys/shape.ts";
import { addKey, revokeKey } from "../actions/keys.ts";
import { requireOrganization } from "../actions/organizations.ts";
import { type Command, UsageError } from "../command.ts";
import { withDatabase } from "../operator-database.ts";
import { createdKeyText, keyTable } from "../print/keys.ts";
import { moreLine } from "../print/table.ts";
import { PAGE_OPTIONS, readChoice, readName, readPage, readScopes } from "../read-options.ts";

const KINDS: readonly KeyKind[] = ["secret", "management"];
const KIND_OPTION = { value: "KIND", meaning: "secret or management; secret if not said" };
const ORGANIZATION_OPTION = { value: "ID", meaning: "the organization", isRequired: true };

const create: Command = {
  noun: "keys",
  verb: "create",
  summary: "Creates a key of an organization and shows it this once.",
  options: {
    org: ORGANIZATION_OPTION,
    name: {
      value: "NAME",
      meaning: "what it is called; unique in its organization",
      isRequired: true,
    },
    kind: KIND_OPTION,
    scopes: { value: "A,B", meaning: "what it may do; everything if not said" },
  },
  run: ({ options }, context) => {
    const wish = {
      organizationId: options.org!,
      name: readName("name", options.name!),
      kind: readChoice("kind", options.kind, KINDS) ?? "secret",
      scopes: readScopes("scopes", options.scopes),
    };
    return withDatabase(context, async (sql) => {
      const { record, secret } = await addKey(sql, wish, context.nowMs());
      return { data: createdKeyShape(record, secret), text: createdKeyText(record, secret) };
    });
  },
};

const list: Command = {
  noun: "keys",
  verb: "list",
  summary: "Lists the keys of an organization, newest first, without their secrets.",
  options: { org: ORGANIZATION_OPTION, ...PAGE_OPTIONS },
  run: ({ options }, context) => {
    const page = readPage(options);
    return withDatabase(context, async (sql) => {
      const { id: organizationId } = await requireOrganization(sql, options.org!);
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
  summary: "Revokes a key for good; a running gateway refuses it within a second.",
  options: { id: { value: "KEY_ID", meaning: "the key's id, such as key_…" } },
  positional: "KEY_ID",
  run: async ({ options, positional }, context) => {
    const id = options.id ?? positional;
    if (id === undefined) throw new UsageError("keys revoke needs --id");
    if (options.id !== undefined && positional !== undefined) {
      throw new UsageError("keys revoke takes one key at a time");
    }
    await withDatabase(context, (sql) => revokeKey(sql, id));
    return { data: { id, deleted: true }, text: "The key is revoked.\n" };
  },
};

const generate: Command = {
  noun: "keys",
  verb: "generate",
  summary:
    "Prints a well-formed key that belongs to nothing yet, for GATEWAY_SECRET_KEY and the like.",
  options: { kind: KIND_OPTION },
  run: async ({ options }) => {
    const kind = readChoice("kind", options.kind, KINDS) ?? "secret";
    const { key } = generateApiKey(kind);
    return { data: { kind, key }, text: `${key}\n` };
  },
};

export const keyCommands: readonly Command[] = [create, list, revoke, generate];
