-- SPDX-License-Identifier: MIT
-- 400 000 rows; every number follows from the row's id, so the result is the same everywhere.
PRAGMA temp_store = memory;
CREATE TABLE item(id INTEGER PRIMARY KEY, place INTEGER, amount INTEGER, label TEXT);
CREATE TABLE place(id INTEGER PRIMARY KEY, name TEXT);
BEGIN;
INSERT INTO item
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 400000)
  SELECT i, (i * 7919) % 5003, (i * 104729) % 1000003, 'label ' || (i * 31 % 65521) FROM n;
INSERT INTO place
  WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT 5003)
  SELECT i, 'place ' || i FROM n;
COMMIT;
CREATE INDEX item_by_place ON item(place, amount);
SELECT 'rows ' || count(*) FROM item;
SELECT place.name, count(*), sum(item.amount), min(item.label)
  FROM item JOIN place ON place.id = item.place GROUP BY place.id ORDER BY place.id;
SELECT label, count(*), group_concat(id % 97) FROM item WHERE id < 100000 AND label < 'label 11' GROUP BY label ORDER BY label;
DELETE FROM item WHERE id % 31 = 0;
UPDATE item SET label = label || ' again' WHERE id % 37 = 0;
SELECT count(*), sum(amount), sum(length(label)) FROM item;
SELECT 'integrity ' || integrity_check FROM pragma_integrity_check;
