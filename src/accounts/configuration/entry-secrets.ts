import type { StoredEntry } from "../../../db/queries/configuration.ts";
import { MASKED, maskUrl } from "../../platform/config/config-error.ts";
import { prefixOf } from "../provider-keys/provider-keys.ts";

type Fields = Readonly<Record<string, unknown>>;

interface SplitEntry {
  /** The members to store and to show. Keys are replaced by their first characters, as `key_prefix`. */
  readonly body: StoredEntry["body"];
  /** The members with secrets. They replace those of the body. Undefined if the entry has none. */
  readonly secrets: Fields | undefined;
}

/** Members of `aws` that are not secret. */
const SHOWN_OF_AWS = ["region"];

/** Splits an entry of the configuration in two: one part that can be shown, and one that must be sealed. */
export function splitSecrets(entry: Fields): SplitEntry {
  const { api_key: key, api_keys: keys, aws, headers, proxy, key_prefix: _, ...rest } = entry;
  const body: Record<string, unknown> = { ...rest };
  const secrets: Record<string, unknown> = {};
  if (typeof key === "string") {
    secrets.api_key = key;
    body.key_prefix = prefixOf(key);
  }
  if (Array.isArray(keys)) {
    secrets.api_keys = keys;
    body.api_keys = keys.map(({ key: one, ...others }) => ({
      // A key of the file can be the name of a variable.
      ...(one !== undefined && { key_prefix: prefixOf(one) }),
      ...others,
    }));
  }
  if (isFields(aws)) {
    const members = Object.entries(aws);
    secrets.aws = aws;
    body.aws = Object.fromEntries(members.filter(([name]) => SHOWN_OF_AWS.includes(name)));
  }
  if (isFields(headers)) {
    secrets.headers = headers;
    body.headers = maskedValues(headers);
  }
  if (typeof proxy === "string") {
    secrets.proxy = proxy;
    body.proxy = maskUrl(proxy);
  }
  return { body, secrets: Object.keys(secrets).length === 0 ? undefined : secrets };
}

/** Returns the entry with changed members. Null removes a member. A new key replaces all keys of the entry. */
export function changedEntry(entry: Fields, changes: Fields): Fields {
  const { api_key: key, api_keys: keys } = changes;
  const changesKeys = key !== undefined || keys !== undefined;
  const { api_key: _, api_keys: __, key_prefix: ___, ...withoutKeys } = entry;
  const merged = { ...(changesKeys ? withoutKeys : entry), ...changes };
  return Object.fromEntries(Object.entries(merged).filter(([, value]) => value !== null));
}

/** Returns the names with a mark in place of each value. */
export function maskedValues(values: Fields): Fields {
  return Object.fromEntries(Object.keys(values).map((name) => [name, MASKED]));
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
