import { Link } from "../components/controls.tsx";
import { Panel, Time } from "../components/display.tsx";
import { integer, usd } from "../format.ts";
import { meaningOf } from "./error-codes.ts";
import type { Overview } from "./overview.tsx";

interface IssuesProps {
  readonly overview: Overview;
  readonly isUnused: boolean;
}

/** Current issues, each with a link to its remedy. */
export function Issues({ overview, isUnused }: IssuesProps) {
  const { failures, webhooks, provider_keys: providerKeys } = overview.troubles;
  const balanceIssues = moneyIssues(overview);
  const objectIssues = overview.object_issues;
  if (
    objectIssues.length +
      balanceIssues.length +
      failures.length +
      webhooks.length +
      providerKeys.length ===
    0
  ) {
    return isUnused ? null : (
      <p class="all-well">
        No issues: no request was rejected or failed in the last hour, no job failed in the last
        day, and webhooks and provider keys work.
      </p>
    );
  }
  return (
    <Panel title="Current issues">
      <ul class="troubles">
        {balanceIssues}
        {objectIssues.map((issue, position) => (
          <li key={position} class={issue.kind === "budget" ? undefined : "bad"}>
            <ObjectIssueText issue={issue} />
          </li>
        ))}
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
                , next attempt <Time iso={next} />
              </>
            )}
          </li>
        ))}
        {providerKeys.map(({ provider, name }) => (
          <li key={`${provider} ${name}`} class="bad">
            The provider {provider} rejects your key {name}.{" "}
            <Link page="settings/provider-keys">Replace the key</Link>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** A failure outside of requests, in the answer of GET overview. */
export type ObjectIssue =
  | {
      readonly kind: "batch";
      readonly id: string;
      readonly failed: number;
      readonly total: number;
    }
  | { readonly kind: "fine_tuning_job"; readonly id: string; readonly model: string }
  | {
      readonly kind: "vector_store";
      readonly id: string;
      readonly name: string | null;
      readonly failed: number;
    }
  | { readonly kind: "payment"; readonly amount_usd: number; readonly message: string | null }
  | { readonly kind: "budget"; readonly subject: string; readonly name: string };

/** Pages with the budgets of subjects. */
const BUDGET_PAGES: Readonly<Record<string, string>> = {
  ...{ key: "keys", team: "teams", member: "members" },
};

function ObjectIssueText({ issue }: { readonly issue: ObjectIssue }) {
  switch (issue.kind) {
    case "batch": {
      const { id, failed, total } = issue;
      return (
        <>
          {total === 0
            ? "The input of a batch was rejected. "
            : `${integer(failed)} of ${integer(total)} lines of a batch failed. `}
          <Link page="batches" query={{ id }}>
            View the errors
          </Link>
        </>
      );
    }
    case "fine_tuning_job":
      return (
        <>
          A fine-tuning job of {issue.model} failed.{" "}
          <Link page="fine-tuning" query={{ id: issue.id }}>
            View the job
          </Link>
        </>
      );
    case "vector_store": {
      const { id, name, failed } = issue;
      return (
        <>
          {failed === 1 ? "1 file" : `${integer(failed)} files`} could not be indexed in the vector
          store {name ?? id}.{" "}
          <Link page="storage/vector-stores" query={{ id, status: "failed" }}>
            View the files
          </Link>
        </>
      );
    }
    case "payment":
      return (
        <>
          A payment of {usd(issue.amount_usd)} was declined
          {issue.message === null ? "." : `: ${issue.message}`}{" "}
          <Link page="settings/billing">Check the payment method</Link>
        </>
      );
    case "budget":
      return (
        <>
          The budget of the {issue.subject} {issue.name} is used up and rejects requests.{" "}
          <Link page={BUDGET_PAGES[issue.subject] ?? "budgets"}>Raise the budget</Link>
        </>
      );
  }
}

const DAY_MS = 86_400_000;
const SOON_MS = 2 * DAY_MS;

function moneyIssues({ balance_usd: balance, forecast, replenishing }: Overview) {
  const goneAt = forecast?.gone_at ?? null;
  const isGoneSoon =
    replenishing !== "active" && goneAt !== null && Date.parse(goneAt) - Date.now() < SOON_MS;
  const topUpLink = <Link page="settings/billing">Top up</Link>;
  const issues = [];
  if (balance !== null && balance <= 0) {
    issues.push(
      <li key="balance" class="bad">
        The balance is {usd(balance)}: requests can be rejected until you top up. {topUpLink}
      </li>,
    );
  } else if (isGoneSoon) {
    issues.push(
      <li key="balance">
        At the current rate, the balance runs out <Time iso={goneAt} />. {topUpLink}
      </li>,
    );
  }
  if (replenishing === "retrying" || replenishing === "stopped") {
    issues.push(
      <li key="replenishing" class={replenishing === "stopped" ? "bad" : undefined}>
        {replenishing === "stopped"
          ? "Automatic top-ups have stopped: the payment was declined three times. "
          : "The payment of an automatic top-up was declined and will be retried. "}
        <Link page="settings/billing">Check the payment method</Link>
      </li>,
    );
  }
  return issues;
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
