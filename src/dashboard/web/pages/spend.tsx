import { Meter } from "../components/display.tsx";
import { integer, short, usd } from "../format.ts";

interface RateLimits {
  readonly rate_limit_rpm: number | null;
  readonly rate_limit_tpm: number | null;
}

const requestsText = (count: number) => `${integer(count)} ${count === 1 ? "request" : "requests"}`;

/** Requests and tokens per minute of a key or a team. */
export function rateLimits({ rate_limit_rpm: rpm, rate_limit_tpm: tpm }: RateLimits) {
  if (rpm === null && tpm === null) return <span class="quiet">No limit</span>;
  return (
    <span>
      {rpm !== null && requestsText(rpm)}
      {tpm !== null && <span class="sub">{short(tpm)} tokens</span>}
    </span>
  );
}

/** An amount, as a bar if there is a budget. */
export function spendCell(amountUsd: number, budgetUsd: number | null, subject: string) {
  if (budgetUsd === null) return usd(amountUsd);
  const share = budgetUsd === 0 ? 1 : amountUsd / budgetUsd;
  const label = `Budget of ${subject}`;
  return <Meter label={label} share={share} text={`${usd(amountUsd)} of ${usd(budgetUsd)}`} />;
}
