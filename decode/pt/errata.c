// SPDX-License-Identifier: Apache-2.0
/* The models are those that Intel's specification updates name. */
#include "decode/pt/errata.h"

#include <stddef.h>

enum { SKD007 = 1, SKD022 = 2, SKL014 = 4 };

static const struct {
	uint8_t family, model, errata;
} table[] = {
	{6, 78, SKD007 | SKD022 | SKL014}, {6, 94, SKD007 | SKD022 | SKL014}, /* Skylake */
	/* Kaby Lake, Coffee Lake */
	{6, 142, SKD007 | SKD022 | SKL014}, {6, 158, SKD007 | SKD022 | SKL014},
	{6, 165, SKD007 | SKD022 | SKL014}, {6, 166, SKD007 | SKD022 | SKL014}, /* Comet Lake */
	{6, 85, SKD022 | SKL014}, /* Skylake, Cascade Lake, Cooper Lake of servers */
	{6, 102, SKD022 | SKL014}, /* Cannon Lake */
	{6, 125, SKD022 | SKL014}, {6, 126, SKD022 | SKL014}, {6, 106, SKD022 | SKL014},
	{6, 108, SKD022 | SKL014}, /* Ice Lake */
	{6, 140, SKD022 | SKL014}, {6, 141, SKD022 | SKL014}, /* Tiger Lake */
	{6, 167, SKD022 | SKL014}, {6, 168, SKD022 | SKL014}, /* Rocket Lake */
	{6, 143, SKD022 | SKL014}, {6, 207, SKD022}, /* Sapphire Rapids, Emerald Rapids */
	/* Alder Lake */
	{6, 151, SKD022 | SKL014}, {6, 154, SKD022 | SKL014}, {6, 191, SKD022 | SKL014},
	{6, 183, SKD022}, {6, 186, SKD022}, /* Raptor Lake */
	{6, 170, SKD022}, {6, 172, SKD022}, /* Meteor Lake */
	{6, 173, SKD022}, {6, 174, SKD022}, /* Granite Rapids */
	{6, 181, SKD022}, {6, 197, SKD022}, {6, 198, SKD022}, /* Arrow Lake */
	/* Lunar Lake, Panther Lake, Wildcat Lake */
	{6, 189, SKD022}, {6, 204, SKD022}, {6, 213, SKD022},
	{18, 1, SKD022}, {18, 3, SKD022}, /* Nova Lake */
	{19, 1, SKD022}, /* Diamond Rapids */
};

void pterrata_of(uint16_t family, uint16_t model, struct pterrata *ret)
{
	*ret = (struct pterrata){0};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (table[i].family != family || table[i].model != model)
			continue;
		ret->skd007 = table[i].errata & SKD007;
		ret->skd022 = table[i].errata & SKD022;
		ret->skl014 = table[i].errata & SKL014;
	}
}
