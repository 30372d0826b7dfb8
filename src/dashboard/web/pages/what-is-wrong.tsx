import { Link } from "../components/controls.tsx";
import { Notice, Panel, Time } from "../components/display.tsx";
import { integer, usd } from "../format.ts";
import { meaningOf } from "./error-codes.ts";
import type { Overview } from "./overview.tsx";

interface WrongProps {
  readonly overview: Overview;
  readonly isUnused: boolean;
}

/** What to look at, each with the way there. */
export function WhatIsWrong({ overview, isUnused }: WrongProps) {
  const { failures, webhooks, provider_keys: providerKeys } = overview.troubles;
  const ofMoney = <MoneyTroubles overview={overview} />;
  const isFine =
    failures.length + webhooks.length + providerKeys.length === 0 && !hasMoneyTroubles(overview);
  if (isFine && isUnused) return null;
  if (isFine) {
    return (
      <Notice tone="good">
        Nothing is wrong now: no request was refused or failed in the last hour, and webhooks and
        provider keys work.
      </Notice>
    );
  }
  return (
    <Panel title="What is wrong now">
      {ofMoney}
      {failures.map(({ error_code: code, count }) => (
        <FailureNotice key={code} code={code} count={count} />
      ))}
      {webhooks.map(({ id, url, attempts, next_attempt_at: next }) => (
        <Notice key={id} tone="warn">
          {next === null
            ? "A webhook was switched off because its receiver failed six times: "
            : `A webhook's receiver has failed ${attempts === 1 ? "once" : `${attempts} times`}: `}
          <Link page="webhooks" query={{ id }}>
            {url}
          </Link>
          {next !== null && (
            <>
              , tried again <Time iso={next} />
            </>
          )}
        </Notice>
      ))}
      {providerKeys.map(({ provider, name }) => (
        <Notice key={`${provider} ${name}`} tone="warn">
          {provider} refuses your provider key {name}.{" "}
          <Link page="settings">Replace it in the settings</Link>
        </Notice>
      ))}
    </Panel>
  );
}

const DAY_MS = 86_400_000;

function isGoneSoon({ forecast, replenishing }: Overview): boolean {
  const goneAt = forecast?.gone_at ?? null;
  return (
    replenishing !== "active" && goneAt !== null && Date.parse(goneAt) - Date.now() < 2 * DAY_MS
  );
}

function hasMoneyTroubles(overview: Overview): boolean {
  const { balance_usd: balance, replenishing } = overview;
  return (
    balance <= 0 ||
    isGoneSoon(overview) ||
    replenishing === "retrying" ||
    replenishing === "stopped"
  );
}

function MoneyTroubles({ overview }: { readonly overview: Overview }) {
  const { balance_usd: balance, forecast, replenishing } = overview;
  const topUp = <Link page="settings">Top up</Link>;
  return (
    <>
      {balance <= 0 && (
        <Notice tone="bad">
          The balance is {usd(balance)}: requests may be refused until it is topped up. {topUp}
        </Notice>
      )}
      {balance > 0 && isGoneSoon(overview) && (
        <Notice tone="warn">
          The balance is gone <Time iso={forecast!.gone_at} /> at the present pace. {topUp}
        </Notice>
      )}
      {(replenishing === "retrying" || replenishing === "stopped") && (
        <Notice tone={replenishing === "stopped" ? "bad" : "warn"}>
          {replenishing === "stopped"
            ? "Automatic top-ups have stopped: the payment was declined three times. "
            : "The payment of an automatic top-up was declined, and is tried again. "}
          <Link page="settings">Look at the payment method</Link>
        </Notice>
      )}
    </>
  );
}

interface FailureProps {
  readonly code: string;
  readonly count: number;
}

function FailureNotice({ code, count }: FailureProps) {
  const { text, page, action } = meaningOf(code) ?? {};
  return (
    <Notice tone="warn">
      {count === 1 ? "1 request" : `${integer(count)} requests`} failed in the last hour with{" "}
      <Link page="requests" query={{ error_code: code }}>
        {code}
      </Link>
      {text === undefined ? "." : `: ${text.charAt(0).toLowerCase()}${text.slice(1)} `}
      {page !== undefined && <Link page={page}>{action}</Link>}
    </Notice>
  );
}
