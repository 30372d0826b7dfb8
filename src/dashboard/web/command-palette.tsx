import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { call, type Session, session, signOut } from "./api.ts";
import { Icon, type IconName } from "./components/icon.tsx";
import { type ListedModel, useModels } from "./models/catalogue.ts";
import { SETTINGS_SECTIONS } from "./pages/settings/settings.tsx";
import { type DashboardPage, pagesOf, pageTitle } from "./pages/table.ts";
import { mayChange, mayRead, type Right } from "./rights.ts";
import { hrefOf, navigate } from "./router.ts";

interface Command {
  readonly id: string;
  readonly icon: IconName;
  readonly title: string;
  /** Kind of the target, such as "Page" or "Model". */
  readonly kind: string;
  /** Other words by which it is found. */
  readonly words?: string;
  run(): void;
}

/** Time without typing before keys are searched, in milliseconds. */
const SEARCH_DELAY_MS = 150;
const SHOWN_OBJECTS = 5;
const MIN_SEARCH_CHARACTERS = 2;
const REQUEST_ID = /^req_\w+$/;

const goTo =
  (page: string, query: Readonly<Record<string, string>> = {}) =>
  () =>
    navigate(hrefOf(page, query));

/** Pages whose dialog for a new object opens by `?new=1`. */
const CREATIONS: readonly (readonly [title: string, page: string, needs: Right])[] = [
  ["Create key", "keys", "keys:manage"],
  ["Invite member", "members", "keys:manage"],
  ["Create team", "teams", "keys:manage"],
  ["Create webhook", "webhooks", "webhooks:manage"],
];

/** Words for what a section of the settings has, beside its title. */
const SECTION_WORDS: Readonly<Record<string, string>> = {
  billing: "statements invoices credit cards payments top-ups plan",
  alerts: "slack teams discord mail",
};

/** Returns the sections of the settings that the session may open. */
function sectionsOf(pages: readonly DashboardPage[]): readonly Command[] {
  if (!pages.some(({ name }) => name === "settings")) return [];
  return SETTINGS_SECTIONS.filter(({ name, needs }) => name !== "" && mayRead(needs)).map(
    ({ name, title }) => ({
      ...{ id: `settings ${name}`, icon: "settings", title, kind: "Settings" },
      ...{ words: SECTION_WORDS[name] ?? "", run: goTo(`settings/${name}`) },
    }),
  );
}

/** Returns the pages and actions that the session may use. */
function commandsOf(current: Session): readonly Command[] {
  const pages = pagesOf(current);
  return [
    ...pages
      .filter(({ isUnlisted }) => !isUnlisted)
      .map((page) => ({
        ...{ id: `page ${page.name}`, icon: page.icon, title: pageTitle(page), kind: "Page" },
        run: goTo(page.name),
      })),
    ...sectionsOf(pages),
    ...CREATIONS.filter(
      ([, page, needs]) => pages.some(({ name }) => name === page) && mayChange(needs),
    ).map(([title, page]) => ({
      ...{ id: title, icon: "plus" as const, title, kind: "Action" },
      run: goTo(page, { new: "1" }),
    })),
    {
      ...{ id: "sign out", icon: "log-out", title: "Sign out", kind: "Action" },
      run: () => void signOut(),
    },
  ];
}

/** Returns the keys whose names have the text. */
async function searchKeys(text: string, signal: AbortSignal): Promise<readonly Command[]> {
  if (session.value?.kind !== "organization" || !mayRead("keys:manage")) return [];
  const parameters = new URLSearchParams({ search: text, limit: String(SHOWN_OBJECTS) });
  const { data } = await call<{ data: { id: string; name: string }[] }>(
    "GET",
    `v1/keys?${parameters}`,
    { signal },
  );
  return data.map(({ id, name }) => ({
    ...{ id, icon: "key-round" as const, title: name, kind: "Requests of key" },
    run: goTo("requests", { key_id: id }),
  }));
}

/** Returns the models whose names or ids have the text. */
function modelsWith(text: string, models: readonly ListedModel[] | undefined): readonly Command[] {
  if (text.length < MIN_SEARCH_CHARACTERS) return [];
  const found = models?.filter(({ id, name }) => `${id} ${name}`.toLowerCase().includes(text));
  return (found ?? []).slice(0, SHOWN_OBJECTS).map(({ id, name }) => ({
    ...{ id, icon: "boxes" as const, title: name, kind: "Model" },
    run: goTo("models", { id }),
  }));
}

/** A search over pages, actions, keys and models, opened with Ctrl+K or ⌘K. */
export function CommandPalette() {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey)) return;
      // A dialog makes the rest of the page unusable.
      if (document.querySelector("dialog[open]:not(.palette)") !== null) return;
      event.preventDefault();
      setOpen((before) => !before);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return (
    <>
      <button type="button" class="button palette-button" onClick={() => setOpen(true)}>
        <Icon name="search" />
        Go to…
        <kbd>{isApple() ? "⌘K" : "Ctrl K"}</kbd>
      </button>
      {isOpen && <Palette onClose={() => setOpen(false)} />}
    </>
  );
}

const isApple = () => /Mac|iPhone|iPad/.test(navigator.userAgent);

function Palette({ onClose }: { onClose(): void }) {
  const [text, setText] = useState("");
  const [index, setIndex] = useState(0);
  const keys = useKeys(text.trim());
  const { models } = useModels();
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  const commands = useMemo(() => commandsOf(session.value!), []);
  useEffect(() => dialog.current!.showModal(), []);
  const trimmed = text.trim().toLowerCase();
  const shown = [
    ...(REQUEST_ID.test(trimmed)
      ? [
          {
            ...{ id: trimmed, icon: "list" as const, title: trimmed, kind: "Request" },
            run: goTo("requests", { id: trimmed }),
          },
        ]
      : []),
    ...commands.filter(({ title, words = "" }) =>
      `${title} ${words}`.toLowerCase().includes(trimmed),
    ),
    ...keys,
    ...modelsWith(trimmed, models),
  ];
  const current = Math.min(index, shown.length - 1);
  const choose = (command: Command | undefined) => {
    if (command === undefined) return;
    onClose();
    command.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      const next = (current + step + shown.length) % Math.max(1, shown.length);
      setIndex(next);
      document.getElementById(`${id}-${next}`)?.scrollIntoView({ block: "nearest" });
    }
    if (event.key === "Enter") {
      event.preventDefault();
      choose(shown[current]);
    }
  };
  return (
    <dialog ref={dialog} class="palette" aria-label="Go to" onClose={onClose}>
      <input
        type="text"
        role="combobox"
        list={undefined}
        autocomplete="off"
        aria-label="Pages, actions, keys and models"
        aria-expanded="true"
        aria-controls={`${id}-list`}
        aria-activedescendant={shown.length === 0 ? undefined : `${id}-${current}`}
        placeholder="Search pages, actions, keys and models"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setIndex(0);
        }}
        onKeyDown={onKeyDown}
      />
      <div id={`${id}-list`} role="listbox" aria-label="Results" tabIndex={-1}>
        {shown.map((command, position) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the combobox above handles keys
          <div
            key={`${command.kind} ${command.id}`}
            id={`${id}-${position}`}
            role="option"
            tabIndex={-1}
            aria-selected={position === current}
            onClick={() => choose(command)}
            onPointerMove={() => setIndex(position)}
          >
            <Icon name={command.icon} />
            <span class="title">{command.title}</span>
            <span class="quiet">{command.kind}</span>
          </div>
        ))}
      </div>
      {shown.length === 0 && (
        <p class="empty" role="status">
          No results. Search by name, or paste the id of a request.
        </p>
      )}
    </dialog>
  );
}

/** Returns the keys whose names have the text. A failed search finds none. */
function useKeys(text: string): readonly Command[] {
  const [found, setFound] = useState<{ text: string; keys: readonly Command[] }>();
  useEffect(() => {
    if (text.length < MIN_SEARCH_CHARACTERS) return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      searchKeys(text, stop.signal)
        .catch(() => [])
        .then((keys) => !stop.signal.aborted && setFound({ text, keys }));
    }, SEARCH_DELAY_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text]);
  return found?.text === text ? found.keys : [];
}
