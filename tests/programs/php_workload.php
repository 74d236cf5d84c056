<?php
// SPDX-License-Identifier: MIT
// Words, arrays and regular expressions, with a result that is the same each time.
$words = [];
for ($i = 0, $x = 1; $i < 200000; $i++) {
    $x = ($x * 1103515245 + 12345) % 2147483648;
    $word = base_convert((string)($x % 50000), 10, 36);
    $words[$word] = ($words[$word] ?? 0) + 1;
}
ksort($words, SORT_STRING);
$text = implode(" ", array_keys($words));
$found = preg_match_all("/\\b[a-m]\\w*[0-9]\\b/", $text, $matches);
echo count($words), " ", $found, " ", md5($text), " ", strlen(json_encode($words)), "\n";
