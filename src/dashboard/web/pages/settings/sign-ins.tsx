import { useState } from "preact/hooks";
import { call, session } from "../../api.ts";
import { Button, Link } from "../../components/controls.tsx";
import { Confirm, toast } from "../../components/dialog.tsx";
import { Badge, Empty, Panel, Time } from "../../components/display.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { integer } from "../../format.ts";
import { useResource } from "../../resource.ts";

/** As GET /dashboard/api/settings/sign-ins lists it. */
interface SignInKey {
  readonly id: string;
  readonly name: string;
  readonly key_prefix: string;
  readonly is_active: boolean;
  readonly expires_at: string | null;
  readonly created_at: string;
  readonly sessions: number;
  readonly last_seen_at: string | null;
}

interface Person {
  readonly id: string;
  readonly name: string;
  readonly sessions: number;
  readonly last_seen_at: string;
}

type SignIn = SignInKey | Person;

const isKey = (one: SignIn): one is SignInKey => "key_prefix" in one;

/** Management keys, and people of the identity provider who have signed in. */
export function SignIns() {
  const { data, error, reload } = useResource<{ people: Person[]; keys: SignInKey[] }>(
    "settings/sign-ins",
  );
  const [ending, setEnding] = useState<SignIn>();
  const close = () => setEnding(undefined);
  const end = async ({ id }: SignIn) => {
    const { ended } = await call<{ ended: number }>("DELETE", `settings/sign-ins/${id}`);
    toast(ended === 1 ? "Ended 1 session." : `Ended ${integer(ended)} sessions.`);
    close();
    reload();
  };
  return (
    <Panel title="Who signs in" isFlush>
      <p class="panel-lead">
        Everyone who has one of these keys can sign in here; revoke a key on the page{" "}
        <Link page="keys">Keys</Link> to lock them out. The gateway's operator makes new ones
        {data !== undefined && data.people.length > 0 && ", and decides who may use single sign-on"}
        .
      </p>
      <Table<SignIn>
        label="Who signs in"
        columns={columns(setEnding)}
        rows={data && [...data.people, ...data.keys]}
        error={error}
        keyOf={({ id }) => id}
        empty={<Empty title="No management key can sign in." />}
      />
      {ending !== undefined && (
        <Confirm
          title={`End the sessions of ${ending.name}?`}
          action="End sessions"
          onClose={close}
          onConfirm={() => end(ending)}
        >
          {isYou(ending)
            ? "All but this one end within a second."
            : "They end within a second. Those who may still sign in can do so again."}
        </Confirm>
      )}
    </Panel>
  );
}

const isYou = ({ id }: SignIn) => id === session.value?.key.id;

function columns(onEnd: (one: SignIn) => void): Column<SignIn>[] {
  return [
    {
      title: "Key or person",
      cell: (one) => (
        <span>
          <span class="strong">{one.name}</span> {isYou(one) && <Badge tone="good">You</Badge>}
          {isKey(one) ? (
            <span class="sub code">{one.key_prefix}</span>
          ) : (
            <span class="sub">Single sign-on</span>
          )}
        </span>
      ),
    },
    { title: "State", isCorner: true, cell: stateOf },
    {
      title: "Open sessions",
      cell: ({ sessions }) =>
        sessions === 0 ? <span class="quiet">None</span> : integer(sessions),
    },
    {
      title: "Last seen",
      cell: ({ last_seen_at: at }) => <Time iso={at} otherwise="Not signed in" />,
    },
    {
      title: "Created",
      isSecondary: true,
      cell: (one) => <Time iso={isKey(one) ? one.created_at : null} form="date" />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (one) =>
        one.sessions > (isYou(one) ? 1 : 0) && (
          <Button
            variant="quiet"
            label={`End the sessions of ${one.name}`}
            onClick={() => onEnd(one)}
          >
            End sessions
          </Button>
        ),
    },
  ];
}

function stateOf(one: SignIn) {
  if (!isKey(one)) return <Badge tone="good">Signed in</Badge>;
  if (!one.is_active) return <Badge>Off</Badge>;
  const isExpired = one.expires_at !== null && Date.parse(one.expires_at) <= Date.now();
  return isExpired ? <Badge tone="bad">Expired</Badge> : <Badge tone="good">On</Badge>;
}
