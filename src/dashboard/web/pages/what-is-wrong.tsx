import { Link } from "../components/controls.tsx";
import { Panel, Time } from "../components/display.tsx";
import { integer, usd } from "../format.ts";
import { meaningOf } from "./error-codes.ts";
import type { Overview } from "./overview.tsx";

interface WrongProps {
  readonly overview: Overview;
  readonly isUnused: boolean;
}

interface WrongProps {
  readonly overview: Overview;
  readonly isUnused: boolean;
}

/** What to look at, each with the way there. */
export function WhatIsWrong({ overview, isUnused }: WrongProps) {
  const { failures, webhooks, provider_keys: providerKeys } = overview.troubles;
  const ofMoney = moneyTroubles(overview);
  if (ofMoney.length + failures.length + webhooks.length + providerKeys.length === 0) {
    return isUnused ? null : (
      <p class="all-well">
        Nothing is wrong now: no request was refused or failed in the last hour, and webhooks and
        provider keys work.
      </p>
    );
  }
  return (
    <Panel title="What is wrong now">
      <ul class="troubles">
        {ofMoney}
        {failures.map(({ error_code: code, count }) => (
          <FailureTrouble key={code} code={code} count={count} />
        ))}
        {webhooks.map(({ id, url, attempts, next_attempt_at: next }) => (
          <li key={id} class={next === null ? "bad" : undefined}>
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
          </li>
        ))}
        {providerKeys.map(({ provider, name }) => (
          <li key={`${provider} ${name}`} class="bad">
            {provider} refuses your provider key {name}.{" "}
            <Link page="settings">Replace it in the settings</Link>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

const DAY_MS = 86_400_000;
const SOON_MS = 2 * DAY_MS;

function moneyTroubles({ balance_usd: balance, forecast, replenishing }: Overview) {
  const goneAt = forecast?.gone_at ?? null;
  const isGoneSoon =
    replenishing !== "active" && goneAt !== null && Date.parse(goneAt) - Date.now() < SOON_MS;
  const topUp = <Link page="settings">Top up</Link>;
  const troubles = [];
  if (balance !== null && balance <= 0) {
    troubles.push(
      <li key="balance" class="bad">
        The balance is {usd(balance)}: requests may be refused until it is topped up. {topUp}
      </li>,
    );
  } else if (isGoneSoon) {
    troubles.push(
      <li key="balance">
        The balance is gone <Time iso={goneAt} /> at the present pace. {topUp}
      </li>,
    );
  }
  if (replenishing === "retrying" || replenishing === "stopped") {
    troubles.push(
      <li key="replenishing" class={replenishing === "stopped" ? "bad" : undefined}>
        {replenishing === "stopped"
          ? "Automatic top-ups have stopped: the payment was declined three times. "
          : "The payment of an automatic top-up was declined, and is tried again. "}
        <Link page="settings">Look at the payment method</Link>
      </li>,
    );
  }
  return troubles;
}

interface FailureProps {
  readonly code: string;
  readonly count: number;
}

function FailureTrouble({ code, count }: FailureProps) {
  const { text, page, action } = meaningOf(code) ?? {};
  return (
    <li>
      {count === 1 ? "1 request" : `${integer(count)} requests`} failed in the last hour with{" "}
      <Link page="requests" query={{ error_code: code }}>
        {code}
      </Link>
      {text === undefined ? "." : `: ${text.charAt(0).toLowerCase()}${text.slice(1)} `}
      {page !== undefined && <Link page={page}>{action}</Link>}
    </li>
  );
}
