/** Formats figures and times for pages: in English, with times in the viewer's time zone. */

const LOCALE = "en-US";
/** Non-breaking space between a number and its unit. */
const SPACE = "\u00a0";
const cents = new Intl.NumberFormat(LOCALE, { style: "currency", currency: "USD" });
const small = new Intl.NumberFormat(LOCALE, {
  style: "currency",
  currency: "USD",
  maximumSignificantDigits: 2,
});
const fine = new Intl.NumberFormat(LOCALE, {
  style: "currency",
  currency: "USD",
  minimumFractionDigits: 6,
});
const exact = new Intl.NumberFormat(LOCALE, {
  style: "currency",
  currency: "USD",
  maximumFractionDigits: 9,
});
const integers = new Intl.NumberFormat(LOCALE);
const compact = new Intl.NumberFormat(LOCALE, { notation: "compact", maximumFractionDigits: 1 });

const CENT_USD = 0.01;
/** One nano-USD, the unit of the ledger. */
const LEAST_USD = 1e-9;

/** Formats an amount in USD to the cent, and a positive amount below one cent with two significant digits. */
export function usd(amount: number): string {
  // Sums of floats and averages can be less than the ledger's unit.
  if (amount >= LEAST_USD / 2 && amount < CENT_USD) return small.format(amount);
  // Without this, a negative amount that rounds to zero would be shown as -$0.00.
  return cents.format(Math.abs(amount) < 0.005 ? 0 : amount);
}

/** Half of the last decimal of `usdFine`. */
const LEAST_FINE_USD = 0.5e-6;

/** Formats the cost of a single request in USD with six decimals, and a smaller cost in full. */
export function usdFine(amount: number): string {
  return amount > 0 && amount < LEAST_FINE_USD ? exact.format(amount) : fine.format(amount);
}

/** Formats an amount in USD to the nano-USD, the unit of the ledger. */
export function usdExact(amount: number): string {
  return exact.format(amount);
}

export function integer(value: number): string {
  return integers.format(value);
}

/** Formats a number such as 12.3K. */
export function short(value: number): string {
  return compact.format(value);
}

const BYTE_UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB"];

/** Formats a number of bytes such as 1.5 GiB. */
export function bytes(count: number): string {
  const unit = count < 1 ? 0 : Math.min(Math.floor(Math.log2(count) / 10), BYTE_UNITS.length - 1);
  const value = count / 1024 ** unit;
  return `${value.toLocaleString(LOCALE, { maximumFractionDigits: value < 10 ? 1 : 0 })}${SPACE}${BYTE_UNITS[unit]}`;
}

/** Formats an amount in any currency. */
export function money(amount: number, currency: string): string {
  return amount.toLocaleString(LOCALE, { style: "currency", currency });
}

const LEAST_PERCENT_SHARE = 0.0005;

/** Formats a share such as 3.9%, and a positive share that rounds to zero as "<0.1%". */
export function percent(share: number): string {
  if (share > 0 && share < LEAST_PERCENT_SHARE) return "<0.1%";
  return `${(share * 100).toLocaleString(LOCALE, { maximumFractionDigits: share < 0.1 ? 1 : 0 })}%`;
}

const MAX_PERCENT_SHARE = 10;

/** Formats the change from one figure to a later one, such as "↑ +12%". */
export function change(before: number, now: number): string {
  const share = before > 0 ? now / before - 1 : 0;
  if (before > 0 && Math.abs(share) < LEAST_PERCENT_SHARE) return "No change";
  if (before <= 0) return now > before ? "↑" : now < before ? "↓" : "No change";
  if (share >= MAX_PERCENT_SHARE) return `↑ ${integer(Math.round(now / before))}×`;
  return share > 0 ? `↑ +${percent(share)}` : `↓ −${percent(-share)}`;
}

export function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Formats a name such as "rate_limited" as "Rate limited". */
export function titled(name: string): string {
  return capitalized(name).replaceAll("_", " ");
}

const SECOND_MS = 1_000;

export function duration(ms: number): string {
  if (ms < SECOND_MS) return `${Math.round(ms)}${SPACE}ms`;
  return `${(ms / SECOND_MS).toLocaleString(LOCALE, { maximumFractionDigits: ms < 10 * SECOND_MS ? 2 : 1 })}${SPACE}s`;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;

/** Formats a time as "5 min ago" or "in 2 h". Times more than six days away are dates. */
export function relative(iso: string, nowMs: number): string {
  const ms = nowMs - Date.parse(iso);
  const age = Math.abs(ms);
  if (age > 6 * DAY_MS) return date(iso);
  const [count, unit] =
    age < MINUTE_MS
      ? [Math.round(age / SECOND_MS), "s"]
      : age < HOUR_MS
        ? [Math.round(age / MINUTE_MS), "min"]
        : age < DAY_MS
          ? [Math.round(age / HOUR_MS), "h"]
          : [Math.round(age / DAY_MS), "d"];
  if (count === 0) return "now";
  return ms >= 0 ? `${count} ${unit} ago` : `in ${count} ${unit}`;
}

export function date(iso: string): string {
  return new Date(iso).toLocaleDateString(LOCALE, {
    day: "numeric",
    month: "short",
    year: "numeric",
  });
}

/** Formats an estimated time: as a date, and within two days as the date with the hour. */
export function approximate(iso: string): string {
  const isWithinTwoDays = Date.parse(iso) - Date.now() < 2 * DAY_MS;
  return new Date(iso).toLocaleString(LOCALE, {
    ...{ day: "numeric", month: "long" },
    ...(isWithinTwoDays && { hour: "2-digit", hourCycle: "h23", minute: "2-digit" }),
  });
}

export function dateTime(iso: string): string {
  return new Date(iso).toLocaleString(LOCALE, {
    day: "numeric",
    month: "short",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
  });
}

/** Formats a time of day such as 14:05. */
export function clock(iso: string): string {
  return new Date(iso).toLocaleTimeString(LOCALE, {
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
  });
}

export function utc(iso: string): string {
  return `${new Date(iso).toISOString().replace("T", " ").slice(0, 19)} UTC`;
}
