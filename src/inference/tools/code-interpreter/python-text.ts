/** Where programs start, and where the given files stand. */
export const WORK_FOLDER = "/mnt/data";

/** As Python has it: the path of the gateway is nothing for programs. */
export const PYTHON_PATH = "/usr/bin/python3";

/**
 * Leaves a function as its value that runs a cell as a notebook does: names last from one to the next, the value
 * of a last expression is printed, and an exception is printed with the program's own lines alone. Takes from
 * Python the modules that lead to JavaScript.
 */
export const PREPARE_PYTHON = `
def _prepare():
    import ast, asyncio, linecache, os, random, sys, traceback, types
    from _pyodide._importhook import jsfinder
    from pyodide.code import CodeRunner

    os.makedirs("${WORK_FOLDER}", exist_ok=True)
    os.chdir("${WORK_FOLDER}")
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    count = -1
    # A snapshot has the same state each time.
    random.seed()

    def print_error(error):
        frames = error.__traceback__
        while frames is not None and not frames.tb_frame.f_code.co_filename.startswith("<cell"):
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames)

    def keep_figures():
        plots = sys.modules.get("matplotlib.pyplot")
        if plots is None:
            return
        for number in plots.get_fignums():
            plots.figure(number).savefig(f"${WORK_FOLDER}/figure-{count}-{number}.png")
        plots.close("all")

    async def run(code):
        nonlocal count
        count += 1
        name = f"<cell {count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        has_finished = False
        try:
            value = await CodeRunner(code, filename=name, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT).compile().run_async(main.__dict__)
            if value is not None:
                print(repr(value))
            keep_figures()
            has_finished = True
        except SystemExit as end:
            has_finished = end.code in (None, 0)
        except BaseException as error:
            print_error(error)
        sys.stdout.flush()
        sys.stderr.flush()
        return has_finished

    def run_loop(*_, **__):
        raise RuntimeError("asyncio.run does not work here: await at the top level instead")

    def refuse_process(*_):
        raise OSError("there are no processes here")

    asyncio.run = run_loop
    # Through Node's interfaces, which break down without the kernel's leave.
    os.system = refuse_process
    sys.stdout.reconfigure(line_buffering=True)
    for name in ("js", "pyodide_js"):
        jsfinder.jsproxies.pop(name, None)
        for loaded in [key for key in sys.modules if key.split(".")[0] == name]:
            del sys.modules[loaded]
    return run

_prepare()
`;
