import type { PendingAlert } from "../../db/queries/alert-delivery.ts";
import { ALERT_KINDS, type AlertKind } from "../lib/alerts.ts";

/** A message about one or more alerts, in plain text. Texts can hold names that people chose. */
export interface AlertMessage {
  readonly title: string;
  /** One line for each alert, then the number of those that are not listed. */
  readonly lines: readonly string[];
  /** Page of the dashboard. Undefined without a public address. */
  readonly url: string | undefined;
  /** The same for each attempt to send the message, if it covers the same first alert. */
  readonly id: string;
}

/** Most alerts that a message lists. */
export const MAX_LISTED_ALERTS = 10;

const PAGES: Readonly<Record<AlertKind, string>> = {
  balance: "settings/billing",
  budgets: "keys",
  payments: "settings/billing",
  requests: "requests",
  jobs: "batches",
  webhooks: "webhooks",
};

interface MessageSource {
  readonly id: string;
  readonly organizationName: string;
  readonly shown: readonly Pick<PendingAlert, "kind" | "type" | "data">[];
  readonly counts: ReadonlyMap<AlertKind, number>;
  readonly names: ReadonlyMap<string, string>;
  readonly publicUrl: string | undefined;
}

/** Returns the message about alerts that wait. Several come in one message. */
export function alertMessage({ shown, counts, names, ...source }: MessageSource): AlertMessage {
  const organization = plain(source.organizationName);
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const lines = shown.map(({ type, data }) => alertLine(type, data, names));
  const kinds = [...counts.keys()];
  const kind = kinds.length === 1 ? kinds[0] : undefined;
  const subject = total === 1 ? titleOf(shown[0]!.kind) : `${total} alerts`;
  if (total > shown.length)
    lines.push(`${total - shown.length} earlier: ${countsText(counts)} in total.`);
  const { publicUrl } = source;
  return {
    title: `${organization}: ${subject}`,
    lines,
    url:
      publicUrl && new URL(`/dashboard/${kind === undefined ? "" : PAGES[kind]}`, publicUrl).href,
    id: source.id,
  };
}

function countsText(counts: ReadonlyMap<AlertKind, number>): string {
  return [...counts].map(([kind, count]) => `${count} × ${titleOf(kind)}`).join(", ");
}

function titleOf(kind: AlertKind): string {
  return ALERT_KINDS.find((one) => one.kind === kind)!.title;
}

type Data = Readonly<Record<string, unknown>>;
type Names = ReadonlyMap<string, string>;

/** Returns what happened, in one sentence or two. */
export function alertLine(type: string, data: Data, names: Names): string {
  return LINES[type]?.(data, names) ?? `Event ${plain(type)}.`;
}

const LINES: Readonly<Record<string, (data: Data, names: Names) => string>> = {
  "credits.low": (data) =>
    `The balance has fallen to ${usd(data.balance_usd)}. The threshold is ${usd(data.threshold_usd)}.`,
  "budget.threshold": (data, names) =>
    `${capitalized(subject(data, names))} has spent ${Number(data.threshold_percent)} % of its ${plain(data.period)} budget: ${spent(data)}.`,
  "budget.exhausted": (data, names) =>
    `${capitalized(subject(data, names))} has exhausted its ${plain(data.period)} budget: ${spent(data)}. Requests that do not fit are rejected until ${time(data.period_end)}.`,
  "payment.failed": (data) =>
    `A payment of ${usd(data.amount_usd)} failed: ${plain(data.reason)} (${plain(data.payment_id)}).`,
  "payment.disputed": (data) =>
    `A payment of ${usd(data.amount_usd)} is disputed (${plain(data.payment_id)}). The organization is suspended until the dispute ends.`,
  "credits.replenish_failed": (data) =>
    `Automatic top-up has stopped after ${Number(data.declines)} declined payments: ${plain(data.reason)}. The balance is ${usd(data.balance_usd)}.`,
  "requests.error_rate": (data) =>
    `${Number(data.error_percent)} % of the requests failed: ${Number(data.errors)} of ${Number(data.requests)} between ${time(data.period_start)} and ${time(data.period_end)}.`,
  "batch.failed": (data, names) =>
    `Batch ${plain(data.batch_id)} of ${subject(data, names)} failed: ${messageOf(data)}`,
  "batch.completed": (data, names) => {
    const { failed, total } = data.request_counts as { failed: number; total: number };
    return `In batch ${plain(data.batch_id)} of ${subject(data, names)}, ${failed} of ${total} requests failed.`;
  },
  "fine_tuning.job.failed": (data) =>
    `Fine-tuning job ${plain(data.job_id)} of ${plain(data.model)} failed: ${messageOf(data)}`,
  "webhook.disabled": (data) =>
    `The webhook to ${plain(data.host)} (${plain(data.webhook_id)}) was disabled because deliveries failed.`,
};

/** Returns the name and the id of the key, team, member, end user or tag. */
function subject(data: Data, names: Names): string {
  const stated = data.subject as { type: string; id: string } | undefined;
  const { type, id } = stated ?? { type: "key", id: String(data.key_id) };
  const name = data.key_name ?? names.get(id);
  const title = SUBJECTS[type] ?? plain(type);
  return name === undefined || name === null
    ? `${title} ${plain(id)}`
    : `${title} “${plain(name)}” (${plain(id)})`;
}

const SUBJECTS: Readonly<Record<string, string>> = {
  key: "key",
  team: "team",
  member: "member",
  user: "end user",
  tag: "tag",
};

function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function spent(data: Data): string {
  return `${usd(data.spent_usd)} of ${usd(data.budget_usd)}`;
}

function messageOf({ error }: Data): string {
  return plain((error as { message?: unknown } | null)?.message ?? "no reason is known.", 200);
}

function usd(value: unknown): string {
  const amount = Number(value);
  const digits = amount !== 0 && Math.abs(amount) < 0.01 ? 9 : 2;
  const text = Math.abs(amount).toFixed(digits);
  return `${amount < 0 ? "-" : ""}$${digits === 9 ? text.replace(/0+$/, "") : text}`;
}

function time(value: unknown): string {
  return `${String(value).slice(0, 16).replace("T", " ")} UTC`;
}

const MAX_NAME_CHARACTERS = 100;
/** Controls, line breaks, and characters that hide or turn the text after them. */
const UNSHOWN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu;

/** Returns a name or an id as one short line without control characters. */
export function plain(value: unknown, mostCharacters = MAX_NAME_CHARACTERS): string {
  const text = String(value).replace(UNSHOWN, " ").trim();
  const characters = [...text];
  return characters.length <= mostCharacters
    ? text
    : `${characters.slice(0, mostCharacters - 1).join("")}…`;
}

/** The message of a test. */
export function testMessage(
  source: Pick<MessageSource, "id" | "organizationName" | "publicUrl">,
): AlertMessage {
  const { publicUrl } = source;
  return {
    title: `${plain(source.organizationName)}: test alert`,
    lines: ["This is a test. Alerts of the model gateway arrive here."],
    url: publicUrl && new URL("/dashboard/", publicUrl).href,
    id: source.id,
  };
}
