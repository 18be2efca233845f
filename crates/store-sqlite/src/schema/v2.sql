-- Flower 1.30 and later: the tasks between which a message goes.
ALTER TABLE instruction ADD COLUMN src_task INTEGER;
ALTER TABLE instruction ADD COLUMN dst_task INTEGER;
ALTER TABLE reply ADD COLUMN src_task INTEGER;
ALTER TABLE reply ADD COLUMN dst_task INTEGER;
