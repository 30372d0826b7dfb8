import { MAX_RATE_LIMIT, type StatedSettings } from "../../../lib/api-key-record.ts";
import { nanoFromUsd } from "../../../lib/money.ts";
import { parseIsoTime } from "../../../lib/utc-time.ts";
import { UsageError } from "../command.ts";
import { aliasId, list, type Members, members, number, parseJson, text } from "./translation.ts";

/** Keys of LiteLLM in the form of this gateway's keys. LiteLLM stores no secrets, so each gets a new one. */
export interface KeyTranslation {
  readonly keys: readonly StatedSettings[];
  /** One line for each key, or setting of keys, that has no counterpart. */
  readonly leftOut: readonly string[];
}

/**
 * Translates answers of `/key/list?return_full_object=true` of LiteLLM's proxy: one, or a list of them. A key that could
 * do more here than there, because a limit has no counterpart, is left out. Throws UsageError if the text has no keys.
 */
export function translateLitellmKeys(source: string, nowMs: number): KeyTranslation {
  const parsed = parseJson(source);
  const pages = (Array.isArray(parsed) ? parsed : [parsed]).map(members);
  const entries = pages.flatMap((page) => list(page.keys));
  if (!pages.every((page) => Array.isArray(page.keys))) {
    throw new UsageError("the file of --keys has no list keys");
  }
  if (entries.some((entry) => typeof entry === "string")) {
    throw new UsageError(
      "the file of --keys has only hashes: request /key/list?return_full_object=true",
    );
  }
  const leftOut = new Set<string>();
  const pageCount = Math.max(...pages.map((page) => number(page.total_pages) ?? 1));
  if (pageCount > pages.length) {
    leftOut.add(`keys: the file has ${pages.length} of ${pageCount} pages`);
  }
  const keys = new Map<string, StatedSettings>();
  for (const [index, entry] of entries.map(members).entries()) {
    const path = `keys[${index}]`;
    const name = text(entry.key_alias) ?? text(entry.key_name) ?? path;
    const label = `key ${name}`;
    const reason = keys.has(name) ? "another key has its name" : reasonAgainst(entry, nowMs);
    if (reason !== undefined) {
      leftOut.add(`${label}: ${reason}`);
      continue;
    }
    for (const [setting, value] of Object.entries(entry)) {
      if (!TRANSLATED.has(setting) && isStated(value)) {
        leftOut.add(`keys[].${setting}: ${HINTS[setting] ?? "has no counterpart"}`);
      }
    }
    keys.set(name, settingsOf(name, entry));
  }
  return { keys: [...keys.values()], leftOut: [...leftOut] };
}

const DAILY = ["1d", "24h"];
const MONTHLY = ["30d", "1mo"];

/** Returns the reason why a key is left out, such as a limit without which it could do more here. */
function reasonAgainst(key: Members, nowMs: number): string | undefined {
  const expires = text(key.expires);
  const models = list(key.models);
  if (!isName(text(key.key_alias) ?? "key"))
    return "its name is too long or has control characters";
  if (key.blocked === true) return "it is blocked";
  if (expires !== undefined) {
    const time = parseIsoTime(expires);
    if (time === undefined) return `its expiry ${expires} is not a time`;
    if (time.ms <= nowMs) return "it has expired";
  }
  if (typeof key.max_budget === "number") {
    const duration = text(key.budget_duration);
    if (duration === undefined)
      return "budgets here renew each day or month, but its budget never does";
    if (![...DAILY, ...MONTHLY].includes(duration)) {
      return `budgets here renew each day or month, not in ${duration}`;
    }
  }
  for (const limit of ["rpm_limit", "tpm_limit"]) {
    const rate = key[limit];
    if (typeof rate === "number" && (rate < 1 || rate > MAX_RATE_LIMIT))
      return `its ${limit} is ${rate}`;
  }
  const special = models.find((model) => SPECIAL_MODELS.test(String(model)));
  if (special !== undefined)
    return `its models include ${String(special)}, which has no counterpart`;
  const limit = LIMITS_WITHOUT_COUNTERPART.find((name) => isStated(key[name]));
  return limit && `its ${limit} has no counterpart`;
}

const SPECIAL_MODELS = /\*|^(?:all-team-models|no-default-models)$/;
const LIMITS_WITHOUT_COUNTERPART = [
  ...["tpd_limit", "model_max_budget", "budget_limits", "budget_id", "access_group_ids"],
];

function settingsOf(name: string, key: Members): StatedSettings {
  const budget = typeof key.max_budget === "number" ? nanoFromUsd(key.max_budget) : undefined;
  const isDaily = DAILY.includes(text(key.budget_duration) ?? "");
  const [rpm, tpm] = [number(key.rpm_limit), number(key.tpm_limit)];
  const expires = text(key.expires);
  const models = list(key.models).flatMap((model) => text(model) ?? []);
  const isOpen = models.length === 0 || models.includes("all-proxy-models");
  return {
    name,
    ...(budget !== undefined &&
      (isDaily ? { dailyBudgetNano: budget } : { monthlyBudgetNano: budget })),
    ...(rpm !== undefined && { rateLimitRpm: rpm }),
    ...(tpm !== undefined && { rateLimitTpm: tpm }),
    ...(!isOpen && { allowedModels: [...new Set(models.map(aliasId))] }),
    ...(expires !== undefined && { expiresAtMs: parseIsoTime(expires)!.ms }),
  };
}

const MAX_NAME_CHARACTERS = 256;

const isName = (name: string) => name.length <= MAX_NAME_CHARACTERS && !/\p{Cc}/u.test(name);

function isStated(value: unknown): boolean {
  if (value === null || value === undefined || value === false) return false;
  return typeof value !== "object" || Object.keys(value).length > 0;
}

const HINTS: Readonly<Record<string, string>> = {
  aliases: "make aliases for the organization",
  max_parallel_requests: "set max_parallel_requests of providers or endpoints",
  team_id: "limits of teams are not imported; make teams by POST /v1/teams",
  user_id: "requests name their user",
};

const TRANSLATED = new Set([
  ...["token", "token_id", "key_name", "key_alias", "max_budget", "budget_duration", "models"],
  ...["rpm_limit", "tpm_limit", "expires", "spend", "total_spend", "model_spend"],
  ...["budget_reset_at", "created_at", "created_by", "updated_at", "updated_by", "last_active"],
  ...["settings_updated_at", "rotation_count", "key_rotation_at", "last_rotation_at", "key_type"],
]);
