import { useState } from "preact/hooks";
import { ROLE_RIGHTS, ROLES, type Role } from "../../../../lib/roles.ts";
import { call } from "../../api.ts";
import { Check, Choice, Field } from "../../components/controls.tsx";
import { Dialog, Form, toast } from "../../components/dialog.tsx";
import { grantableRoles, roleTitle } from "../../rights.ts";
import { numberIn } from "../key-dialog.tsx";
import type { Member, Team } from "./names.ts";

interface MemberDialogProps {
  readonly edited: Member;
  readonly teams: readonly Team[];
  onChanged(): void;
  onClose(): void;
}

/** Changes the role, the teams and the budgets of a member. */
export function MemberDialog({ edited, teams, onChanged, onClose }: MemberDialogProps) {
  const before = entriesOf(edited);
  const [entries, setEntries] = useState(before);
  const set = (changed: Partial<typeof before>) =>
    setEntries((previous) => ({ ...previous, ...changed }));
  const save = async () => {
    const body = changedIn(entries, edited);
    if (Object.keys(body).length > 0) await call("PATCH", `v1/members/${edited.id}`, { body });
    toast(`Updated ${edited.name}.`);
    onClose();
    onChanged();
  };
  return (
    <Dialog title={`Edit ${edited.name}`} onClose={onClose}>
      <Form submit="Save" onCancel={onClose} onSubmit={save}>
        <RoleChoice role={entries.role} onChange={(role) => set({ role })} />
        <TeamChecks {...{ teams }} chosen={entries.teams} onChange={(ids) => set({ teams: ids })} />
        <Budgets {...entries} onChange={set} />
      </Form>
    </Dialog>
  );
}

interface BudgetsProps {
  readonly daily: string;
  readonly monthly: string;
  onChange(changed: { daily?: string; monthly?: string }): void;
}

/** Daily and monthly budget of a member or a team. */
export function Budgets({ daily, monthly, onChange }: BudgetsProps) {
  const common = { inputMode: "decimal", placeholder: "No budget" } as const;
  return (
    <div class="pair">
      <Field
        label="Daily budget"
        param="daily_budget_usd"
        hint="USD per UTC day"
        value={daily}
        onInput={(text) => onChange({ daily: text })}
        {...common}
      />
      <Field
        label="Monthly budget"
        param="monthly_budget_usd"
        hint="USD per UTC month"
        value={monthly}
        onInput={(text) => onChange({ monthly: text })}
        {...common}
      />
    </div>
  );
}

interface RoleChoiceProps {
  readonly role: Role;
  onChange(role: Role): void;
}

/** The roles that the session can give, with an explanation of the chosen one. */
export function RoleChoice({ role, onChange }: RoleChoiceProps) {
  const grantable = grantableRoles();
  return (
    <Choice
      label="Role"
      param="role"
      value={role}
      options={ROLES.filter((one) => grantable.includes(one)).map((one) => [one, roleTitle(one)])}
      hint={ROLE_RIGHTS[role].description}
      onChange={(chosen) => onChange(chosen as Role)}
    />
  );
}

interface TeamChecksProps {
  readonly teams: readonly Team[];
  /** Ids of the chosen teams. */
  readonly chosen: readonly string[];
  onChange(chosen: readonly string[]): void;
}

export function TeamChecks({ teams, chosen, onChange }: TeamChecksProps) {
  if (teams.length === 0) return null;
  return (
    <fieldset class="rows">
      <legend>Teams</legend>
      <div class="checks">
        {teams.map(({ id, name }) => (
          <Check
            key={id}
            label={name}
            isChecked={chosen.includes(id)}
            onChange={(isOn) =>
              onChange(isOn ? [...chosen, id] : chosen.filter((one) => one !== id))
            }
          />
        ))}
      </div>
    </fieldset>
  );
}

function entriesOf({ role, teams, ...member }: Member) {
  return {
    role,
    teams: teams.map(({ id }) => id) as readonly string[],
    daily: String(member.daily_budget_usd ?? ""),
    monthly: String(member.monthly_budget_usd ?? ""),
  };
}

/**
 * Returns the changed fields, so that a change does not undo what another person has changed since. A member keeps its
 * role in the teams in which it stays.
 */
function changedIn(entries: ReturnType<typeof entriesOf>, edited: Member): Record<string, unknown> {
  const before = entriesOf(edited);
  const isChanged = (field: keyof typeof before) =>
    String([entries[field]].flat().toSorted()) !== String([before[field]].flat().toSorted());
  return {
    ...(isChanged("role") && { role: entries.role }),
    ...(isChanged("teams") && {
      teams: entries.teams.map((id) => edited.teams.find((team) => team.id === id) ?? { id }),
    }),
    ...(isChanged("daily") && {
      daily_budget_usd: numberIn(entries.daily, "Daily budget", "daily_budget_usd"),
    }),
    ...(isChanged("monthly") && {
      monthly_budget_usd: numberIn(entries.monthly, "Monthly budget", "monthly_budget_usd"),
    }),
  };
}
