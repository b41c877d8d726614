#!/usr/bin/env python3
"""Writes expressions.tsv: what CPython makes of expressions, for tests/unit/test_expr.c.

Every line is an expression, a tab, and the repr of its value or "error". CPython evaluates the text itself; the only
thing added is a check around every operation that its result is neither a float, nor text, nor wider than 64 bits.
Run it anew after adding a case: python3 make_expressions.py > expressions.tsv
"""
import ast
import builtins
import random
import re

NAMES = {"M": 64, "N": -7, "zero": 0, "three": 3, "largest": 2**63 - 1, "least": -(2**63), "yes": True, "no": False,
         "none": None, "text": "abc", "empty": "", "gpu": "AMD Instinct MI300X"}

WRITTEN = """
7 // 2|-7 // 2|7 // -2|-7 // -2|0 // -5|7 % 3|-7 % 3|7 % -3|-7 % -3|6 % 3|-6 % 3|6 % -3|1 // 0|1 % 0|0 // 0
least // -1|least % -1|least // 1|largest // -1|largest + 1|least - 1|largest * 2|least * -1|-least|+least|abs(least)
-9223372036854775808|- 9223372036854775808|9223372036854775808|-9223372036854775809|--9223372036854775808
9223372036854775807|-9223372036854775808 ** 1|(-9223372036854775808) ** 1|-2 ** 63|(-2) ** 63
(-2) ** 64|2 ** 62|2 ** 63|3 ** 39|3 ** 40|(-3) ** 39|0 ** 0|0 ** 5|1 ** largest|(-1) ** largest|0 ** largest|2 ** -1
1 ** -1|0 ** -1|2 ** 3 ** 2|(2 ** 3) ** 2|-2 ** 2|2 ** -0|True ** False|2 ** True|46341 ** 2|3037000499 ** 2
3037000500 ** 2|(-3037000500) ** 2|+True|-True|-False|+no|True + True|True * 5|5 - True|True // True|5 % True|5 % False
1 < 2 < 3|1 < 3 < 2|3 > 2 > 1|1 < 2 > 1|1 == 1 == 1|1 == 1 != 2|1 < 2 == 2|1 < 2 == True|(1 < 2) == True|1 == True
True == 1 == 1|0 == False|'' == False|None == False|None == 0|None == None|None != 1|'a' == 'a'|'a' == 1|'1' == 1
'a' != 1|'a' < 'b'|'b' < 'a'|'a' < 'aa'|'' < 'a'|'Z' < 'a'|'a' < 1|1 < 'a'|None < 1|1 >= None|None < None|None <= None
True < 2|False < True|'a' <= 'a' < 'b'|1 < 2 < 'a'|2 < 1 < 'a'|2 < 1 < 1 // 0|1 < 2 < 1 // 0|3 == M // 0|least < largest
1 in (1, 2)|3 in (1, 2)|3 not in (1, 2)|1 in [1]|1 in []|1 in ()|1 not in ()|1 in (1,)|1 in (1)|True in (1, 2)|0 in [False]
'a' in ('a', 'b')|'a' in ('ab',)|'a' in 'abc'|'ab' in text|'' in text|'' in ''|'abcd' in text|'d' not in text|1 in text
None in text|None in (None,)|None in ()|1 in none|1 in 2|'a' in yes|'MI300' in gpu|'MI300' not in gpu|gpu in ('a', gpu)
1 in (1 // 0,)|1 in (1, 1 // 0)|1 in (2, (3))|1 in (1 if no else 2, 3)|'a' in ('abc')|'a' in (text if yes else 1)
1 < 2 in (2, 3)|1 < 2 in (3, 4)|2 < 1 in (1 // 0,)|1 in [1, 2,]|1 in (1, 2,)|'b' in text == True|'b' in text != None
'a' in 'ab' in 'cab'|1 == 1 in (1,)|not 1 in (1,)|(not 1) in (0,)|M in (32, 64, 128) and N not in (1, 2)
1 and 2|0 and 2|1 or 2|0 or 2|0 or ''|'' or None|None and 1|'a' and 'b'|0 and 1 // 0|1 or 1 // 0|1 and 1 // 0|0 or 1 // 0
1 and 0 or 3|1 or 0 and 3|0 and 1 or 2|0 or 1 and 2|not 0|not 1|not ''|not 'a'|not None|not not 5|not 1 == 2|not 1 or 2
not (1 or 2)|not 0 and 3|1 and not 0|yes and no or none|1 and 2 and 3|1 and 0 and 3|0 or 0 or 3|0 or 2 or 3|-1 and 2
1 if 1 else 2|1 if 0 else 2|1 // 0 if 0 else 2|1 if 1 else 1 // 0|1 if '' else 2|1 if 0 else 2 if 0 else 3
1 if 0 else 2 if 1 else 3|(1 if 0 else 2) if 1 else 3|1 if (0 if 1 else 1) else 3|1 or 2 if 0 else 3|1 if 0 or 1 else 3
(1 if yes else 2) + 3|1 + 1 if 0 else 5|4 * (1 if no else 2)|1 if 1 < 2 < 3 else 0|1 if not 1 else 0
1 + (2 if 1 else 3) * (4 if 0 else 5)|(1 if 1 else 2) if (0 if 0 else 0) else (7 if 1 else 8)
2 + 3 * 4|(2 + 3) * 4|2 * 3 % 4|2 * (3 % 4)|7 // 2 * 2|7 * 2 // 4|10 - 3 - 2|10 - (3 - 2)|- 3 + 5|-3 * -3|-3 // 2|-(3 // 2)
- - 3|+ - + 3|2 - -2|2--2|2+-+-2|1_000 * 0x10|0x_ff|0XFF|0xDEAD_beef|0|00|0_0|1_0_0|0x7fffffffffffffff|0xffffffffffffffff
min(1, 2)|max(1, 2)|min(3, 1, 2)|max(3, 1, 2)|max(1, True)|max(True, 1)|min(0, False)|min(False, 0)|max('a', 'b')|min('a', 'b')
max(1, 'a')|max(None, 1)|min(1, 2, 'a')|abs(-5)|abs(5)|abs(True)|abs('a')|abs(none)|abs(N)|min(1 + 1, 2 * 3,)
ceil_div(7, 2)|ceil_div(-7, 2)|ceil_div(7, -2)|ceil_div(-7, -2)|ceil_div(8, 2)|ceil_div(0, 3)|ceil_div(1, 0)
ceil_div(least, -1)|ceil_div(largest, 2)|ceil_div(least, 2)|ceil_div(largest, -1)|ceil_div(True, 2)|ceil_div('a', 2)
next_pow2(1)|next_pow2(2)|next_pow2(3)|next_pow2(64)|next_pow2(65)|next_pow2(0)|next_pow2(-1)|next_pow2(2**62)
next_pow2(2**62 + 1)|next_pow2(largest)|next_pow2('a')|log2(1)|log2(2)|log2(3)|log2(64)|log2(largest)|log2(0)|log2(-8)
log2(True)|log2(none)|ceil_div(M, 48) * next_pow2(three)|max(M, three) // min(M, three)|log2(next_pow2(M + 1))
text + text|text * 2|2 * text|text - 1|text % 1|text // 1|-text|+text|-none|none + 1|none * 2|text ** 2|1 + 'a'|'%d' % 3
'a\\\\b'|'a\\'b'|"a\\"b"|'a\\nb'|'a\\tb'|'\\x41'|"it's"|'"'|'\\r'|'é'|'é' < 'z'|'é' > 'z'|'日本' in '日本語'|'a' "b"|'open
(1|1)|1 +|+|1 2|M N|1 if 2|if 1 else 2|1 if 2 else|not|1 not 2|1 in|in 1|()|(1, 2)|[1]|(1,)|1, 2|1 < < 2|1 = 1|1 <> 2|1 ! 2
M.N|M[0]|M(1)|min(|min()|min(1|min(,1)|min(1,,2)|min(1 2)|abs(1, 2)|(,)|1 in (,)|1 in [1|1 in (1, 2|1 in [1)|1 in (1]
True False|True = 1|and 1|1 and|or|1 or or 2|1 and not|not not|1 +* 2|1 // / 2|2 ** ** 2|2 ***3|((((1))))|((((1)))|()()|1__0
1_|_1|0x|0x_|0xg|012|0b1|0o7|1.5|1.|.5|1e3|1j|1 / 2|1 & 2|1 | 2|~1|1 << 2|1 @ 2|lambda: 1|lambda a, b: 1|a := 1
1 is 1|None is None|1 is not 2|f'a'|b'a'|r'a'|'a'[0]|'a'.upper()|(1).real|*M|**M|...|print(1)|__import__('os')|unknown
""".strip()

ours = {"ceil_div": lambda a, b: -(-int_of(a) // int_of(b)), "next_pow2": lambda x: 1 << (positive(x) - 1).bit_length(),
        "log2": lambda x: positive(x).bit_length() - 1, "min": lambda *a: a[0] if len(a) == 1 else builtins.min(*a),
        "max": lambda *a: a[0] if len(a) == 1 else builtins.max(*a), "abs": abs}


def int_of(value):
    if not isinstance(value, int):
        raise TypeError
    return value


def positive(value):
    if int_of(value) < 1:
        raise ValueError
    return int(value)


def check(value, name=None):
    if isinstance(value, (float, complex)) or (isinstance(value, str) and name not in ("min", "max")):
        raise TypeError
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise OverflowError
    return value


class Checks(ast.NodeTransformer):
    """Wraps what computes in check(); what CPython has and expressions do not have is refused."""
    ALLOWED = (ast.Expression, ast.Constant, ast.Name, ast.Load, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp,
               ast.Call, ast.Tuple, ast.List, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
    REFUSED = (ast.Div, ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift, ast.MatMult, ast.Invert, ast.Is,
               ast.IsNot)

    def generic_visit(self, node):
        if not isinstance(node, self.ALLOWED) or isinstance(node, self.REFUSED):
            raise SyntaxError
        return super().generic_visit(node)

    def wrap(self, node, *more):
        return ast.Call(ast.Name("check", ast.Load()), [node, *map(ast.Constant, more)], [])

    def visit_Constant(self, node):
        if isinstance(node.value, (float, complex, bytes)) or node.value is ...:
            raise SyntaxError
        if type(node.value) is int:
            return self.wrap(node)
        return node

    def visit_UnaryOp(self, node):
        least = isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant) and node.operand.value == 2**63
        if not least:
            node = self.generic_visit(node)
        return node if isinstance(node.op, ast.Not) else self.wrap(node)

    def visit_BinOp(self, node):
        if isinstance(node.op, ast.Pow):  # computed without building a number of millions of digits
            return ast.Call(ast.Name("power", ast.Load()), [self.visit(node.left), self.visit(node.right)], [])
        return self.wrap(self.generic_visit(node))

    def visit_Call(self, node):
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name not in ours or node.keywords or not node.args:
            raise SyntaxError
        node.args = [self.visit(argument) for argument in node.args]
        return self.wrap(node, name)

    def visit_Compare(self, node):
        for i, right in enumerate(node.comparators):
            if isinstance(right, (ast.Tuple, ast.List)):
                if not isinstance(node.ops[i], (ast.In, ast.NotIn)) or i + 1 < len(node.comparators):
                    raise SyntaxError
                right.elts = [self.visit(element) for element in right.elts]
            else:
                node.comparators[i] = self.visit(right)
        node.left = self.visit(node.left)
        for op in node.ops:
            self.generic_visit(op)
        return node

    def visit_Tuple(self, node):
        raise SyntaxError

    visit_List = visit_Tuple


def power(base, exponent):
    if int_of(exponent) > 63 and abs(int_of(base)) > 1:
        raise OverflowError
    return check(base**exponent)


def is_joined(text):
    """'a' 'b' is one constant to CPython; expressions do not have it."""
    return any(isinstance(n, ast.Constant) and isinstance(n.value, str) and "' '" in text.replace('"', "'")
               for n in ast.walk(ast.parse(text, mode="eval")))


def expected(text):
    try:
        tree = ast.parse(text, mode="eval")
        if is_joined(text) or re.search(r"(?<![\w\\])[rf]'|\b0[bo]", text):  # literals that expressions do not have
            return "error"
        code = compile(ast.fix_missing_locations(Checks().visit(tree)), "", "eval")
        return repr(eval(code, {"__builtins__": {}, "check": check, "power": power, **ours, **NAMES}))
    except Exception:
        return "error"


def generate(random, depth):
    """A random expression; its text is parsed by its own brackets or the lack of them."""
    if depth == 0 or random.random() < 0.1:
        return random.choice([*NAMES, *"0 1 2 3 5 7 16 -1 -3 True False None 'a' 'abc' 'MI300X' 4294967296".split()])
    sub = lambda: generate(random, depth - 1)
    bare = random.choice([
        lambda: f"{sub()} {random.choice('+ - * // % + - * // % **'.split())} {sub()}",
        lambda: f"{sub()} {random.choice('== != < <= > >='.split())} {sub()}",
        lambda: f"{sub()} {random.choice('== != < <= > >= in'.split())} {sub()} {random.choice('< <= > >='.split())} {sub()}",
        lambda: f"{sub()} {random.choice(['and', 'or'])} {sub()}",
        lambda: f"{random.choice(['not ', '-', '+'])}{sub()}",
        lambda: f"{sub()} if {sub()} else {sub()}",
        lambda: f"{sub()} {random.choice(['in', 'not in'])} ({sub()}, {sub()})",
        lambda: f"{random.choice(['min', 'max', 'ceil_div'])}({sub()}, {sub()})",
        lambda: f"{random.choice(['abs', 'next_pow2', 'log2'])}({sub()})",
    ])()
    return f"({bare})" if random.random() < 0.4 else bare


def main():
    texts = [text.strip() for line in WRITTEN.split("\n") for text in line.split("|")]
    seed = random.Random(42)
    seen, values, errors = set(texts), 0, 0
    while values < 500 or errors < 100:
        text = generate(seed, seed.randint(1, 4))
        fails = expected(text) == "error"
        if text in seen or len(text) > 160 or (errors if fails else values) >= (100 if fails else 500):
            continue
        seen.add(text)
        texts.append(text)
        errors += fails
        values += not fails
    for text in texts:
        print(f"{text}\t{expected(text)}")


main()
