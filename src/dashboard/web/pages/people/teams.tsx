import { useState } from "preact/hooks";
import { call } from "../../api.ts";
import { Button } from "../../components/controls.tsx";
import { Confirm, toast } from "../../components/dialog.tsx";
import { Empty, PageHead, Panel } from "../../components/display.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { mayChange } from "../../rights.ts";
import { useNewDialog } from "../../router.ts";
import { rateLimits, spendCell } from "../spend.tsx";
import { type Member, type Team, useMembers, useTeams } from "./names.ts";
import { TeamDialog } from "./team-dialog.tsx";

export function TeamsPage() {
  const { data, error, reload } = useTeams(true);
  const members = useMembers().data?.data ?? [];
  const [edited, setEdited] = useState<Team | "new">();
  const [deleted, setDeleted] = useState<Team>();
  const create = (variant: "primary" | "plain", text: string) => (
    <Button variant={variant} needs="keys:manage" onClick={() => setEdited("new")}>
      {text}
    </Button>
  );
  useNewDialog(() => setEdited("new"));
  return (
    <>
      <PageHead title="Teams">{create("primary", "Create team")}</PageHead>
      <Panel isFlush>
        <Table
          label="Teams"
          columns={columns(members, setEdited, setDeleted)}
          rows={data?.data}
          error={error}
          keyOf={({ id }) => id}
          empty={
            <Empty title="No teams yet">
              <p>
                The keys of a team share its budgets and limits. Its members create keys for
                themselves, within its policy.
              </p>
              {create("plain", "Create your first team")}
            </Empty>
          }
        />
      </Panel>
      {edited !== undefined && (
        <TeamDialog
          edited={edited === "new" ? undefined : edited}
          onChanged={reload}
          onClose={() => setEdited(undefined)}
        />
      )}
      {deleted !== undefined && (
        <Confirm
          title={`Delete ${deleted.name}?`}
          action="Delete team"
          onClose={() => setDeleted(undefined)}
          onConfirm={async () => {
            await call("DELETE", `v1/teams/${deleted.id}`);
            toast(`Deleted ${deleted.name}.`);
            setDeleted(undefined);
            reload();
          }}
        >
          Its budgets and limits no longer apply, and its members stay in the organization. A team
          that has keys cannot be deleted: delete its keys first, or move them to another team on
          the page Keys.
        </Confirm>
      )}
    </>
  );
}

function columns(
  members: readonly Member[],
  onEdit: (team: Team) => void,
  onDelete: (team: Team) => void,
): Column<Team>[] {
  return [
    {
      title: "Name",
      cell: (team) => (
        <span>
          <span class="strong">{team.name}</span>
          <span class="sub">{memberNames(team, members)}</span>
        </span>
      ),
    },
    {
      title: "Today",
      isNumber: true,
      cell: (team) => spendCell(team.usage_today_usd, team.daily_budget_usd, `${team.name}, today`),
    },
    {
      title: "This month",
      isNumber: true,
      cell: (team) =>
        spendCell(team.usage_month_usd, team.monthly_budget_usd, `${team.name}, this month`),
    },
    { title: "Per minute", isNumber: true, isSecondary: true, cell: rateLimits },
    { title: "Rules", isSecondary: true, cell: rules },
    {
      title: "Actions",
      isAction: true,
      cell: (team) =>
        mayChange("keys:manage") && (
          <>
            <Button variant="quiet" label={`Edit ${team.name}`} onClick={() => onEdit(team)}>
              Edit
            </Button>
            <Button variant="quiet" label={`Delete ${team.name}`} onClick={() => onDelete(team)}>
              Delete
            </Button>
          </>
        ),
    },
  ];
}

const MAX_NAMES = 3;

/** Returns text such as "Ada, Grace, Linus and 2 more". */
function memberNames({ id }: Team, members: readonly Member[]): string {
  const names = members.flatMap(({ name, teams }) =>
    teams.some((team) => team.id === id) ? [name] : [],
  );
  if (names.length === 0) return "No members";
  const shown = names.slice(0, MAX_NAMES).join(", ");
  return names.length > MAX_NAMES ? `${shown} and ${names.length - MAX_NAMES} more` : shown;
}

/** Models, guardrail and preset that apply to all requests of the team. */
function rules({ allowed_models: models, guardrail, preset }: Team) {
  if (models === null && guardrail === null && preset === null) {
    return <span class="quiet">None</span>;
  }
  return (
    <span class="stacked">
      {models !== null && (
        <span title={models.join(", ")}>
          {models.length === 1 ? models[0] : `${models.length} models`}
        </span>
      )}
      {guardrail !== null && <span>Guardrail {guardrail}</span>}
      {preset !== null && <span>Preset {preset}</span>}
    </span>
  );
}
