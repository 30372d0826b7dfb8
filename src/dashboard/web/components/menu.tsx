import { useEffect, useId, useRef, useState } from "preact/hooks";
import { mayChange, type Right } from "../rights.ts";
import { Icon, type IconName } from "./icon.tsx";

export interface MenuItem {
  readonly label: string;
  readonly icon?: IconName;
  /** True for an action that destroys something. It comes last, in red. */
  readonly isDanger?: boolean;
  /** For a setting that is on or off. The menu stays open after a choice. */
  readonly isChecked?: boolean;
  /** The right to the change. A session whose role may not make it does not see the item. */
  readonly needs?: Right;
  onSelect(): void;
}

interface ActionMenuProps {
  /** Accessible name of the button: "Actions for ada". */
  readonly label: string;
  readonly icon?: IconName;
  readonly items: readonly MenuItem[];
}

/** Distance between the button and its menu, in pixels. */
const GAP = 4;

/** A button that opens a menu of actions (WAI-ARIA, menu button pattern). Shows nothing without items. */
export function ActionMenu({ label, icon = "ellipsis", items }: ActionMenuProps) {
  const [isOpen, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();
  const allowed = items.filter(({ needs }) => needs === undefined || mayChange(needs));
  if (allowed.length === 0) return null;
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  return (
    <span class="menu-room">
      <button
        ref={button}
        type="button"
        class="button quiet"
        aria-label={label}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        aria-controls={isOpen ? id : undefined}
        onClick={() => setOpen(!isOpen)}
      >
        <Icon name={icon} />
      </button>
      {isOpen && <OpenMenu {...{ id, label, items: allowed, button, close }} />}
    </span>
  );
}

interface OpenMenuProps extends Omit<ActionMenuProps, "icon"> {
  readonly id: string;
  readonly button: { readonly current: HTMLButtonElement | null };
  close(): void;
}

function OpenMenu({ id, label, items, button, close }: OpenMenuProps) {
  const menu = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const shown = menu.current!;
    shown.showPopover();
    moveBelow(shown, button.current!);
    entriesOf(shown)[0]?.focus();
    const onLeave = ({ newState }: ToggleEvent) => newState === "closed" && close();
    const onMove = () => close();
    shown.addEventListener("toggle", onLeave);
    addEventListener("scroll", onMove, true);
    addEventListener("resize", onMove);
    return () => {
      shown.removeEventListener("toggle", onLeave);
      removeEventListener("scroll", onMove, true);
      removeEventListener("resize", onMove);
    };
  }, []);
  const move = (event: KeyboardEvent) => {
    const entries = entriesOf(menu.current!);
    const index = entries.indexOf(document.activeElement as HTMLElement);
    const next = {
      ArrowDown: (index + 1) % entries.length,
      ArrowUp: (index - 1 + entries.length) % entries.length,
      Home: 0,
      End: entries.length - 1,
    }[event.key];
    if (event.key === "Tab") close();
    if (next === undefined) return;
    event.preventDefault();
    entries[next]!.focus();
  };
  const ordered = [
    ...items.filter(({ isDanger }) => !isDanger),
    ...items.filter(({ isDanger }) => isDanger),
  ];
  return (
    <div
      ref={menu}
      id={id}
      class="menu"
      role="menu"
      aria-label={label}
      popover="auto"
      onKeyDown={move}
    >
      {ordered.map(({ label: text, icon, isDanger, isChecked, onSelect }) => (
        <button
          key={text}
          type="button"
          {...(isChecked === undefined
            ? { role: "menuitem" }
            : { role: "menuitemcheckbox", "aria-checked": isChecked })}
          tabIndex={-1}
          class={isDanger ? "bad" : undefined}
          onClick={() => {
            if (isChecked === undefined) close();
            onSelect();
          }}
        >
          {icon && <Icon name={icon} />}
          {isChecked !== undefined && (
            <span class="tick">{isChecked && <Icon name="check" />}</span>
          )}
          {text}
        </button>
      ))}
    </div>
  );
}

const entriesOf = (menu: HTMLElement) => [
  ...menu.querySelectorAll<HTMLElement>('[role^="menuitem"]'),
];

/** Moves a menu below its button, aligned to the button's end, or above it if there is no room below. */
function moveBelow(menu: HTMLElement, button: HTMLElement): void {
  const { top, bottom, right } = button.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const isBelow = bottom + GAP + height <= innerHeight;
  menu.style.top = `${isBelow ? bottom + GAP : Math.max(GAP, top - GAP - height)}px`;
  menu.style.left = `${Math.max(GAP, right - width)}px`;
}
