import { useState } from "preact/hooks";
import { call, session } from "../../api.ts";
import { Button, Link } from "../../components/controls.tsx";
import { Confirm, toast } from "../../components/dialog.tsx";
import { Badge, Empty, Panel, Time } from "../../components/display.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { integer } from "../../format.ts";
import { useResource } from "../../resource.ts";

/** A management key in the answer of GET /dashboard/api/settings/sign-ins. */
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

interface User {
  readonly id: string;
  readonly name: string;
  readonly sessions: number;
  readonly last_seen_at: string;
}

type SignIn = SignInKey | User;

const isKey = (signIn: SignIn): signIn is SignInKey => "key_prefix" in signIn;

/** Management keys, and users that have signed in with the identity provider. */
export function SignIns() {
  const { data, error, reload } = useResource<{ people: User[]; keys: SignInKey[] }>(
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
    <Panel title="Sign-ins" isFlush>
      <p class="panel-lead">
        Anyone with one of these keys can sign in here. To block a key, revoke it on the page{" "}
        <Link page="keys">Keys</Link>. The gateway's operator creates new keys
        {data !== undefined && data.people.length > 0 && " and configures single sign-on"}.
      </p>
      <Table<SignIn>
        label="Sign-ins"
        columns={columns(setEnding)}
        rows={data && [...data.people, ...data.keys]}
        error={error}
        keyOf={({ id }) => id}
        empty={<Empty title="No sign-ins" />}
      />
      {ending !== undefined && (
        <Confirm
          title={`End the sessions of ${ending.name}?`}
          action="End sessions"
          onClose={close}
          onConfirm={() => end(ending)}
        >
          {isYou(ending)
            ? "All sessions except this one end within a second."
            : "The sessions end within a second. Keys and users that still have access can sign in again."}
        </Confirm>
      )}
    </Panel>
  );
}

const isYou = ({ id }: SignIn) => id === session.value?.key.id;

function columns(onEnd: (signIn: SignIn) => void): Column<SignIn>[] {
  return [
    {
      title: "Key or user",
      cell: (signIn) => (
        <span>
          <span class="strong">{signIn.name}</span>{" "}
          {isYou(signIn) && <Badge tone="good">You</Badge>}
          {isKey(signIn) ? (
            <span class="sub code">{signIn.key_prefix}</span>
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
      cell: (signIn) => <Time iso={isKey(signIn) ? signIn.created_at : null} form="date" />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (signIn) =>
        signIn.sessions > (isYou(signIn) ? 1 : 0) && (
          <Button
            needs="keys:manage"
            variant="quiet"
            label={`End the sessions of ${signIn.name}`}
            onClick={() => onEnd(signIn)}
          >
            End sessions
          </Button>
        ),
    },
  ];
}

function stateOf(signIn: SignIn) {
  if (!isKey(signIn)) return <Badge tone="good">Signed in</Badge>;
  if (!signIn.is_active) return <Badge>Off</Badge>;
  const isExpired = signIn.expires_at !== null && Date.parse(signIn.expires_at) <= Date.now();
  return isExpired ? <Badge tone="bad">Expired</Badge> : <Badge tone="good">On</Badge>;
}
