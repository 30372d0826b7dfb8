import type { PostedEntry } from "../../db/queries/credit-entry-find.ts";
import { DEFAULT_MAX_KEYS } from "../../db/queries/key-write.ts";
import type { OperatedOrganization } from "../../db/queries/organization-settings.ts";
import { quotaOfTerms } from "../files/purposes.ts";
import { isoTime } from "../lib/iso-time.ts";
import { usdNumber } from "../lib/money.ts";
import { planFeeBasisPoints } from "../money/plans.ts";
import { DEFAULT_MAX_WEBHOOKS } from "../webhooks/webhooks.ts";

const BASIS_POINTS_PER_PERCENT = 100;

/** What is in force for an organization, and which of it is set for it alone. */
export function organizationShape(organization: OperatedOrganization) {
  const { plan, feeBasisPoints, fileQuotaBytes, maxKeys, maxWebhooks } = organization;
  const { creditLimitNano } = organization;
  const overrides = {
    fee_percent: feeBasisPoints,
    file_quota_bytes: fileQuotaBytes,
    max_keys: maxKeys,
    max_webhooks: maxWebhooks,
  };
  return {
    id: organization.id,
    name: organization.name,
    plan,
    fee_percent: (feeBasisPoints ?? Number(planFeeBasisPoints(plan))) / BASIS_POINTS_PER_PERCENT,
    file_quota_bytes: quotaOfTerms(organization),
    max_keys: maxKeys ?? DEFAULT_MAX_KEYS,
    max_webhooks: maxWebhooks ?? DEFAULT_MAX_WEBHOOKS,
    credit_limit_usd: creditLimitNano === null ? null : usdNumber(creditLimitNano),
    overrides: Object.entries(overrides).flatMap(([field, value]) => (value === null ? [] : field)),
    suspended: organization.isSuspended,
    balance_usd: usdNumber(organization.balanceNano),
    key_count: organization.keyCount,
    created_at: isoTime(organization.createdAtMs),
  };
}

export function postedEntryShape(entry: PostedEntry) {
  return {
    id: entry.id,
    type: entry.type,
    amount_usd: usdNumber(entry.amountNano),
    balance_after_usd: usdNumber(entry.balanceAfterNano),
    description: entry.description,
    created_at: isoTime(entry.createdAtMs),
  };
}
