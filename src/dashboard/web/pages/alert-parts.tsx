import { ALERT_KINDS, type AlertKind } from "../../../lib/alerts.ts";
import { call } from "../api.ts";
import { Check } from "../components/controls.tsx";
import { messageOf, toast } from "../components/dialog.tsx";
import { Badge, Time } from "../components/display.tsx";

/** The state of a channel, or of a member's mail, and the outcome of its last messages. */
export interface AlertOutcome {
  readonly enabled: boolean;
  readonly disabled_by: "request" | "failures" | null;
  readonly last_sent_at: string | null;
  readonly last_failed_at: string | null;
  readonly last_error: string | null;
}

interface AlertKindsProps {
  readonly chosen: readonly AlertKind[];
  /** The kinds to choose from. All, if absent. */
  readonly possible?: readonly AlertKind[];
  onChange(chosen: readonly AlertKind[]): void;
}

/** Check boxes for the kinds of alerts. */
export function AlertKinds({ chosen, possible, onChange }: AlertKindsProps) {
  return (
    <fieldset class="checks one-column">
      <legend>Alerts</legend>
      {ALERT_KINDS.filter(({ kind }) => possible?.includes(kind) ?? true).map((one) => (
        <Check
          key={one.kind}
          label={one.title}
          hint={one.description}
          isChecked={chosen.includes(one.kind)}
          onChange={(isOn) =>
            onChange(isOn ? [...chosen, one.kind] : chosen.filter((kind) => kind !== one.kind))
          }
        />
      ))}
    </fieldset>
  );
}

/** Returns the titles of kinds of alerts. */
export function alertTitles(kinds: readonly AlertKind[]): string {
  return ALERT_KINDS.filter(({ kind }) => kinds.includes(kind))
    .map(({ title }) => title)
    .join(", ");
}

export function AlertBadge({ outcome }: { readonly outcome: AlertOutcome }) {
  if (outcome.disabled_by === "failures") return <Badge tone="bad">Off after failures</Badge>;
  if (!outcome.enabled) return <Badge>Off</Badge>;
  return outcome.last_error === null ? (
    <Badge tone="good">On</Badge>
  ) : (
    <Badge tone="warn">Failing</Badge>
  );
}

/** The time of the last message, and the error of the last attempt if it failed. */
export function LastAlert({ outcome }: { readonly outcome: AlertOutcome }) {
  return (
    <span>
      <Time iso={outcome.last_sent_at} otherwise="Never" />
      {outcome.last_error !== null && (
        <span class="sub bad">
          <Time iso={outcome.last_failed_at} />: {outcome.last_error}
        </span>
      )}
    </span>
  );
}

/** Sends a test alert, and says whether it arrived. */
export async function sendTest(path: string): Promise<void> {
  try {
    const { error } = await call<{ error: string | null }>("POST", path);
    if (error === null) toast("Sent the test alert.");
    else toast(`The test alert failed: ${error}.`, true);
  } catch (error) {
    toast(messageOf(error), true);
  }
}
