import { useEffect, useState } from "preact/hooks";
import type { AlertKind } from "../../../lib/alerts.ts";
import { call } from "../api.ts";
import { Button } from "../components/controls.tsx";
import { Form, toast } from "../components/dialog.tsx";
import { LoadFailure, Notice, Panel, Skeleton } from "../components/display.tsx";
import { useResource } from "../resource.ts";
import { memberRole } from "../rights.ts";
import { AlertBadge, AlertKinds, type AlertOutcome, LastAlert, sendTest } from "./alert-parts.tsx";

/** The answer of GET /dashboard/api/account/alerts. The outcome is absent if the member has never chosen. */
interface MemberAlertChoice extends Partial<AlertOutcome> {
  readonly alerts: readonly AlertKind[];
  readonly possible: readonly AlertKind[];
  /** True if the gateway sends mail. */
  readonly mail: boolean;
  readonly email: string;
  readonly is_verified: boolean;
}

/** The alerts that the member of the session gets by mail. Shows nothing outside of organizations. */
export function MemberAlerts() {
  return memberRole() === undefined ? null : <MemberAlertsPanel />;
}

function MemberAlertsPanel() {
  const { data, error, reload } = useResource<MemberAlertChoice>("account/alerts");
  const outcome = data?.enabled === undefined ? undefined : (data as AlertOutcome);
  return (
    <Panel title="Alerts by mail" aside={outcome && <AlertBadge outcome={outcome} />}>
      {error !== undefined && <LoadFailure message={error} />}
      {data === undefined ? (
        error === undefined && <Skeleton />
      ) : !data.mail ? (
        <Notice>
          This gateway does not send mail. Its operator can configure a mail server with SMTP_URL
          and SMTP_FROM.
        </Notice>
      ) : data.possible.length === 0 ? (
        <Notice>There are no alerts that your role may read.</Notice>
      ) : (
        <AlertsForm choice={data} outcome={outcome} onChanged={reload} />
      )}
    </Panel>
  );
}

interface AlertsFormProps {
  readonly choice: MemberAlertChoice;
  readonly outcome: AlertOutcome | undefined;
  onChanged(): void;
}

function AlertsForm({ choice, outcome, onChanged }: AlertsFormProps) {
  const [alerts, setAlerts] = useState(choice.alerts);
  useEffect(() => setAlerts(choice.alerts), [choice]);
  const save = async () => {
    await call("PATCH", "account/alerts", { body: { alerts } });
    toast("Saved your alerts.");
    onChanged();
  };
  return (
    <>
      {!choice.is_verified && (
        <Notice tone="warn">
          Your address is not verified, so no mail is sent to it. Set a new password by a mailed
          link to verify it.
        </Notice>
      )}
      <p class="hint">Mail goes to {choice.email}, at most 10 messages in an hour.</p>
      <Form submit="Save alerts" onSubmit={save}>
        <AlertKinds chosen={alerts} possible={choice.possible} onChange={setAlerts} />
      </Form>
      {outcome !== undefined && (
        <p class="actions">
          <Button
            isDisabled={!choice.is_verified}
            onClick={() => void sendTest("account/alerts/test")}
          >
            Send test
          </Button>
          <span class="hint">
            Last sent: <LastAlert outcome={outcome} />
          </span>
        </p>
      )}
    </>
  );
}
