// SPDX-License-Identifier: Apache-2.0
/*
 * LuaJIT's just-in-time compiler: traces of loops that call C, leave by side exits into the interpreter, and go on as other traces; C functions that
 * call Lua, which is compiled, too; and errors that leave all of these.
 */
#include <lauxlib.h>
#include <lualib.h>
#include <stdlib.h>

static volatile long sink;

static __attribute__((noinline)) void leaf(long v)
{
	sink += v;
}

/* Called by generated code. */
static int host(int v)
{
	leaf(v);
	if (v % 3 == 0)
		leaf(v + 1);
	return v + 1;
}

static int nested(lua_State *l)
{
	leaf(1);
	lua_pushvalue(l, 1);
	lua_pushinteger(l, 20);
	lua_call(l, 1, 1);
	leaf(2);
	return 1;
}

/* What leaves it is not logged, and so it is not, either. */
__attribute__((no_instrument_function)) static int thrower(lua_State *l)
{
	leaf(3);
	return luaL_error(l, "thrown");
}

static void run(lua_State *l, const char *text)
{
	if (luaL_dostring(l, text))
		abort();
	leaf(4);
}

int main(void)
{
	static const char text[] =
		"local ffi = require('ffi')\n"
		"local host = ffi.cast('int(*)(int)', pointer)\n"
		"jit.opt.start('hotloop=5', 'hotexit=3')\n"
		"local function inner(n) local t = 0 for k = 1, n do t = t + host(k) if k % 7 == 3 then t = t - host(1) end end return t end\n"
		"local function fails(n) for i = 1, n do if host(i) > 12 then thrower() end end end\n"
		"local s = 0\n"
		"for i = 1, 30 do\n"
		"	s = s + host(i)\n"
		"	if i % 5 == 0 then s = s + nested(inner) end\n"
		"	if i % 10 == 4 then pcall(fails, i) end\n"
		"end\n"
		"result = s\n";
	lua_State *l = luaL_newstate();

	luaL_openlibs(l);
	lua_pushlightuserdata(l, (void *)host);
	lua_setglobal(l, "pointer");
	lua_register(l, "nested", nested);
	lua_register(l, "thrower", thrower);
	run(l, text);
	lua_close(l);
	return 0;
}
